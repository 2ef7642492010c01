"""Products from raw rows."""

import pytest

from agentrl.envs.webshop import catalogue, products
from agentrl.envs.webshop.products import Source, build, prices

NOTHING = Source({}, {})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", (100.0,)),
        (None, (100.0,)),
        ("$28.00", (28.0,)),
        ("$1,234.50 - $2.00", (1234.5, 2.0)),
        ("$13.75$ 18.75$ 22.75", (13.75, 18.75)),
        ("from $5.5!", (5.5,)),
    ],
)
def test_prices(text, found):
    assert prices(text) == found


def test_a_price_without_an_amount_is_refused():
    with pytest.raises(ValueError, match=r"'12\.50' holds no dollar amount"):
        prices("12.50")
    with pytest.raises(ValueError, match="dollar amount"):
        prices("$ - ")


def test_rows_are_filtered_and_built(raw):
    shop = catalogue.read(raw)
    assert [p.asin for p in shop.products] == ["B0RED", "B0BLUE", "B0TEA"]
    red, blue, tea = shop.products
    assert red.options == {"color": ("wine red", "rose | gold"), "size": ("large", "color")}
    assert list(blue.options) == ["style", "fit"]
    assert (red.price_tag, blue.price_tag, tea.price_tag) == ("$20.0", "$10.0 to $30.0", "$985.0")
    assert red.query == "area rugs" and red.attributes == ("machine washable", "non slip")
    assert blue.attributes == ("DUMMY_ATTR",)
    assert len(red.wishes) == 2 and blue.wishes == ()


def test_the_limit_counts_rows_before_filtering(raw):
    assert len(catalogue.read(raw, 2).products) == 2
    assert len(catalogue.read(raw, 5).products) == 3


def test_of_groups_with_one_name_the_last_wins_in_the_place_of_the_first(row_of):
    groups = {"Color": [{"value": "A"}], "Size": [{"value": "B"}], "COLOR": [{"value": " C / D "}]}
    product = build(row_of("B1", "x", customization_options=groups), NOTHING)
    assert list(product.options.items()) == [("color", ("c  |  d",)), ("size", ("b",))]


def test_indexed_text_takes_the_first_point_and_the_options(row_of):
    groups = {"Color": [{"value": "Red"}, {"value": "Blue"}], "Size": [{"value": "L"}]}
    product = build(row_of("B1", "Rug", customization_options=groups), NOTHING)
    want = "rug about rug. first point of rug color: red, blue, and size: l"
    assert products.indexed_text(product) == want


def test_one_text_is_one_point(row_of):
    assert build(row_of("B1", "Rug", small_description="only"), NOTHING).bullets == ("only",)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"images": []}, "B1: it has no images"),
        ({"images": None}, "B1: it has no images"),
        ({"name": None}, "B1: name is NoneType, not text"),
        ({"small_description": None}, "B1: small_description holds NoneType, not text"),
        ({"small_description": ["fine", {}]}, "B1: small_description holds dict, not text"),
        ({"pricing": "free"}, "B1: pricing 'free' holds no dollar amount"),
        ({"customization_options": {"Color": [{"image": None}]}}, "B1 has no field 'value'"),
        ({"customization_options": {"Color": [{"value": 3}]}}, "B1 has a field of the wrong type"),
    ],
)
def test_a_faulty_product_is_one_sentence_or_left_out(tmp_path, writer, row_of, fault, says):
    folder = writer(tmp_path, [row_of("B1", "bad", **fault), row_of("B2", "good")], {}, {})
    with pytest.raises(ValueError, match=says):
        catalogue.read(folder)
    assert [p.asin for p in catalogue.read(folder, strict=False).products] == ["B2"]


def test_a_missing_field_is_named(tmp_path, writer, row_of):
    row = row_of("B1", "bad")
    del row["full_description"]
    with pytest.raises(ValueError, match="product B1 has no field 'full_description'"):
        catalogue.read(writer(tmp_path, [row], {}, {}))


def test_bad_folders(tmp_path, raw):
    with pytest.raises(ValueError, match="no such folder"):
        catalogue.read(tmp_path / "nowhere")
    (raw / "items_ins_v2.json").unlink()
    with pytest.raises(ValueError, match=r"has neither items_ins_v2.json nor items_ins_v2_1000.json"):
        catalogue.read(raw)


@pytest.mark.parametrize("text", ['[{"asin": "B1", "name": "cut', '{"a": 1', "[1, 2", '"text"', ""])
def test_truncated_files_are_one_sentence(raw, text):
    (raw / "items_shuffle.json").write_text(text)
    with pytest.raises(ValueError, match=r"items_shuffle.json (is not complete JSON|is not a catalogue file)|no asin"):
        catalogue.read(raw)
