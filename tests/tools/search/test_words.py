"""Words of all scripts: what BM25 finds, and what it says of a corpus that it cannot cut."""

import json
import re
import unicodedata
import warnings

import pytest

from agentrl.tool import search_words as words
from agentrl.tool.search_words import plain
from agentrl.tools.search.bm25 import Bm25, Bm25Config

DOCUMENTS = {
    "palace": "故宫\n故宫位于北京市中心，是明清两代的皇家宫殿。",
    "wall": "長城\n長城は中国の防御施設です。",
    "seoul": "서울\n서울은 대한민국의 수도이다.",
    "cat": "猫\n猫は小さい動物で、コンピュータが好き。2024年生まれ。",
    "bangkok": "กรุงเทพมหานคร\nกรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย",
    "vientiane": "ວຽງຈັນ\nວຽງຈັນເປັນນະຄອນຫຼວງຂອງປະເທດລາວ",
    "angkor": "អង្គរវត្ត\nអង្គរវត្តគឺជាប្រាសាទនៅប្រទេសកម្ពុជា",
    "yangon": "ရန်ကုန်\nရန်ကုန်မြို့သည်မြန်မာနိုင်ငံ၏မြို့တော်ဟောင်းဖြစ်သည်",
    "delhi": "दिल्ली\nदिल्ली भारत की राजधानी है।",
    "cairo": "القاهرة\nالقاهرة هي عاصمة مصر",
    "school": "مَدْرَسَة\nكَتَبَ الطالب",
    "jerusalem": "יְרוּשָׁלַיִם\nעיר בישראל",
    "tehran": "تهران\nکتاب‌خانه در تهران است. سال ۱۳۹۹",
    "hanoi": "Hà Nội\nThủ đô của Việt Nam",
    "street": "Straße\nGroß und Klein",
    "istanbul": "İstanbul\nBüyük bir şehir",
    "odysseus": "Ὀδυσσεύς\nΛόγος",
    "wide": "ＡＢＣ１２３\nﾃｽﾄ ﬁnal",
    "cafe": "Café\nFounded in 1900.",
    "c": "C\nA language.",
    "cpp": "C++\nA language.",
    "csharp": "C#\nA language.",
    "fsharp": "F#\nA language.",
    "net": ".NET\nA framework.",
    "network": "Net\nFor fish.",
    "node": "Node.js\nRuns scripts.",
    "notepad": "Notepad++\nAn editor.",
    "rare": "𠮷野家\n牛丼 😀",
    "phone": "iPhone手机\n苹果公司",
}
QUERIES = [
    ("故宫在哪里", "palace"), ("北京的皇家宫殿", "palace"), ("皇家", "palace"), ("宫", "palace"),
    ("中国の防御施設", "wall"), ("長城", "wall"), ("대한민국 수도", "seoul"), ("서울이", "seoul"), ("猫", "cat"),
    ("ｺﾝﾋﾟｭｰﾀ", "cat"), ("コンピューター", "cat"), ("２０２４年", "cat"), ("2024", "cat"), ("เมืองหลวง", "bangkok"),
    ("ประเทศไทยเมืองหลวง", "bangkok"), ("ນະຄອນຫຼວງ", "vientiane"), ("កម្ពុជា", "angkor"), ("မြန်မာ", "yangon"),
    ("भारत की राजधानी", "delhi"), ("राजधानी", "delhi"), ("عاصمة مصر", "cairo"), ("مدرسة", "school"), ("كتب", "school"),
    ("ירושלים", "jerusalem"), ("کتابخانه", "tehran"), ("1399", "tehran"), ("Hà Nội", "hanoi"),
    (unicodedata.normalize("NFD", "Thủ đô"), "hanoi"), ("STRASSE", "street"), ("groß", "street"),
    ("istanbul", "istanbul"), ("ŞEHİR", "istanbul"), ("ΛΌΓΟΣ", "odysseus"), ("λόγοσ", "odysseus"),
    ("abc123", "wide"), ("テスト", "wide"), ("final", "wide"), ("cafe\u0301", "cafe"), ("CAFÉ", "cafe"), ("C", "c"),
    ("C++", "cpp"), ("What is C++?", "cpp"), ("C#", "csharp"), ("c＃", "csharp"), ("(C#)", "csharp"), ("F#", "fsharp"),
    (".NET", "net"), ("net", "network"), ("node.js", "node"), ("notepad", "notepad"), ("notepad++", "notepad"),
    ("C++17", "cpp"), ("İSTANBUL", "istanbul"), ("ıstanbul", "istanbul"),
    ("القاهره", "cairo"), ("تهران كتابخانه", "tehran"),
    ("𠮷野", "rare"), ("𠮷", "rare"), ("手机", "phone"), ("iphone", "phone"), ("苹果", "phone"),
]  # fmt: skip


@pytest.fixture(scope="module", params=["pairs", "letters"])
def index(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": key, "contents": text}) + "\n" for key, text in DOCUMENTS.items()))
    return Bm25(Bm25Config(corpus=str(path), units=request.param))


@pytest.mark.parametrize(("query", "wanted"), QUERIES)
def test_a_query_finds_its_passage_first(index, query, wanted):
    assert [passage.id for passage in index.search([query], 3)[0]][:1] == [wanted]


def test_pairs_by_hand():
    assert words("故宫在", query=True) == ["故宫", "宫在"]
    assert words("故宫在") == ["故宫", "宫在", "故", "宫", "在"]
    assert words("宫", query=True) == ["宫"] and words("故宫", "letters") == ["故", "宫"]
    assert words("C語言 2024年", query=True) == ["c", "語言", "2024", "年"]
    assert words("กำ", query=True) == words("กํา", query=True)  # two spellings of one vowel


def test_what_a_text_may_leave_out_makes_no_difference():
    assert plain("کتاب\u200cخانه") == plain("کتابخانه") and plain("soft\u00adhyphen") == "softhyphen"
    assert plain("كَتَبَ") == "كتب" and plain("٢٠٢٤") == "2024" and words("वि\u0915ास") == words("विकास") != words("वकास")


ENGLISH = [
    "The quick brown fox's 1,000 leaps; e.g. 3.14 of them (U.S.A.) in 2020-01-02, o'clock -- snake_case, a/b & co.",
    "What is the capital of Peru? It isn't Lima's: x=1; y = 2*x. http://example.com/?q=1 mail@example.org 50%",
    '"Title"\nA text with "quotes", tabs\tand\nlines. A sentence ends here. Another one... and the end!',
]


@pytest.mark.parametrize("text", ENGLISH)
def test_english_words_are_those_of_before(text):
    old = re.findall(r"(?u)\b\w+\b", text.lower())
    assert words(text) == old and words(f"{text} é") == [*old, "é"]


def put(path, text):
    path.write_text(json.dumps({"id": "1", "contents": text}) + "\n")
    return Bm25Config(corpus=str(path))


def test_a_corpus_that_cannot_be_cut_is_named_when_the_index_is_built(tmp_path):
    config = put(tmp_path / "a.jsonl", "nowordhasblanksinthistextwhichisverylong" * 3)
    with pytest.warns(
        UserWarning, match=r"100% of the letters of the corpus .*a\.jsonl stand in words of more than 40"
    ):
        Bm25(config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Bm25(config)  # the index is read
        Bm25(put(tmp_path / "b.jsonl", DOCUMENTS["palace"] * 20))
        Bm25(put(tmp_path / "c.jsonl", "A text with a " + "long" * 20 + " word. " + "Plain words follow. " * 30))


def test_an_index_of_another_rule_for_words_is_built_again_with_a_sentence(tmp_path):
    config = put(tmp_path / "a.jsonl", "故宫位于北京")
    about = Bm25(config).folder / "about.json"
    told = json.loads(about.read_text())
    for old in ({name: value for name, value in told.items() if name != "words"}, {**told, "words": 1}):
        about.write_text(json.dumps(old, sort_keys=True))
        with pytest.warns(
            UserWarning, match=r"a\.jsonl\.bm25 was made by another rule for words, so it is built again"
        ):
            Bm25(config)
        assert json.loads(about.read_text()) == told
