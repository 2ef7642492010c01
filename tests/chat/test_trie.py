import numpy as np
import pytest

from agentrl.chat import Trie, Tries

END = 9


def arrays(*choices):
    return [np.array([*c, END]) for c in choices]


def test_trie_by_hand():
    # go-to-desk, go-to-bed, look: after "go" (1), "to" (2) is forced; after "look" (5) the end is
    trie = Trie(arrays([1, 2, 3], [1, 2, 4], [5]))
    assert trie.allowed(0).tolist() == [1, 5]
    assert trie.forced(0).tokens == ()
    go = trie.follow(0, 1)
    assert trie.forced(go).tokens == (2,)
    end = trie.forced(go).node
    assert trie.allowed(end).tolist() == [3, 4]
    bed = trie.forced(trie.follow(end, 4))
    assert bed.tokens == (END,)
    assert trie.is_leaf(bed.node)
    assert trie.choice(bed.node) == 1
    assert trie.choice(trie.forced(trie.follow(0, 5)).node) == 2


def test_single_choice_is_all_forced():
    trie = Trie(arrays([1, 2]))
    assert trie.forced(0).tokens == (1, 2, END)


def test_double_choice_is_one_leaf():
    trie = Trie(arrays([1], [2], [1]))
    assert trie.choice(trie.forced(trie.follow(0, 1)).node) == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_choice_that_begins_another_is_refused(order):
    choices = [np.array([1, 2]), np.array([1, 2, 3])]
    with pytest.raises(ValueError, match="end every choice with the end token"):
        Trie([choices[i] for i in order])


def test_no_choice_and_an_empty_choice_are_refused():
    with pytest.raises(ValueError, match="at least one choice"):
        Trie([])
    with pytest.raises(ValueError, match="is empty"):
        Trie([np.array([1]), np.zeros(0, np.int64)])


@pytest.mark.parametrize("seed", range(20))
def test_paths_through_the_trie_are_exactly_the_choices(seed):
    rng = np.random.default_rng(seed)
    choices = {(*rng.integers(0, 4, rng.integers(0, 5)).tolist(), END) for _ in range(8)}
    trie = Trie([np.array(c) for c in choices])

    def walk(node):
        if trie.is_leaf(node):
            return {()}
        return {(int(t), *rest) for t in trie.allowed(node) for rest in walk(trie.follow(node, int(t)))}

    assert walk(0) == choices
    for number, choice in enumerate(choices):
        sets = trie.sets(choice)
        assert len(sets) == len(choice)
        for place, allowed in enumerate(sets):
            following = {c[place] for c in choices if c[:place] == choice[:place]}
            assert allowed.tolist() == sorted(following)
        node = 0
        for token in choice:
            node = trie.follow(node, token)
        assert trie.choice(node) == number


def test_sets_of_a_foreign_answer_name_the_place():
    with pytest.raises(ValueError, match="token 7 at place 1"):
        Trie(arrays([1, 2])).sets([1, 7])


def test_tries_are_shared_and_bounded():
    tries = Tries(capacity=10)  # nodes: 5 of the first, 4 of the second, 3 of the third
    first = tries.get(arrays([1], [2]))
    assert tries.get(arrays([1], [2])) is first
    assert tries.get(arrays([1, 2])) is not first  # the same ids cut differently
    tries.get(arrays([1], [2]))
    tries.get(arrays([3]))
    assert len(tries) == 2
    assert tries.get(arrays([1], [2])) is first  # the one used longest ago left


def test_tries_are_bounded_by_their_nodes():
    tries = Tries(capacity=100)
    for number in range(200):
        tries.get(arrays([number % 7], [7 + number, 7 + number]))
        assert sum(len(trie) for trie in tries._known.values()) <= 100
    assert len(tries.get(arrays(list(range(10, 300))))) > 100 and len(tries) == 1  # a trie in use is kept
