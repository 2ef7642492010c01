"""The words of which the generated shop is made: kinds of goods with their types, attributes, options and prices."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of goods: its search, department, category path, types, attributes, option groups and price range."""

    query: str
    department: str
    path: str
    types: tuple[str, ...]
    attributes: tuple[str, ...]
    groups: tuple[str, ...]
    low: float
    high: float


VALUES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "color": ("black", "white", "navy", "red", "green", "pink", "brown", "silver", "purple", "orange"),
        "size": ("small", "medium", "large", "x-large"),
        "shoe size": ("6", "7", "8", "9", "10", "11"),
        "flavor": ("vanilla", "chocolate", "lemon", "ginger", "mango", "coconut", "peppermint"),
        "scent": ("lavender", "rose", "citrus", "unscented", "eucalyptus"),
        "pack": ("pack of 1", "pack of 2", "pack of 4", "pack of 6"),
        "length": ("3 ft", "6 ft", "10 ft", "15 ft"),
        "width": ("twin", "full", "queen", "king"),
    }
)
GROUP_NAMES: Mapping[str, str] = MappingProxyType(
    {"shoe size": "size", "flavor": "flavor name", "pack": "size", "width": "size", "length": "size"}
)
BRANDS = (
    "Arvena", "Bolmer", "Cindrel", "Dovari", "Elmhart", "Fenwick", "Galtor", "Hollis", "Ivorra", "Jasker", "Kelvane",
    "Lorimar", "Mistral", "Nordale", "Oakren", "Pellury", "Quenby", "Rothwell", "Sundara", "Tavish",
)  # fmt: skip
ADJECTIVES = ("Classic", "Modern", "Everyday", "Premium", "Compact", "Deluxe", "Original", "Improved")
FILLER = (
    "Made for daily use at home and in the office.",
    "Our team answers every question within one day.",
    "Please check the chart before you order.",
    "A thoughtful gift for family and friends.",
    "Colors may differ a little from the pictures.",
    "Packed with care and shipped in a plain box.",
    "Comes with everything needed to get started.",
    "Tested by our own staff for twelve weeks.",
)

_TABLE = """
running shoes; fashion; Clothing > Shoes > Athletic > Running; running shoes, trail shoes, walking shoes
 : arch support, memory foam, anti slip, rubber sole, quick drying : color, shoe size : 25 : 140
dress shirts; fashion; Clothing > Men > Shirts > Dress Shirts; dress shirt, oxford shirt, linen shirt
 : slim fit, long sleeve, button closure, machine wash, wrinkle free : color, size : 15 : 90
winter coats; fashion; Clothing > Women > Coats > Winter; puffer coat, wool coat, hooded parka
 : fleece lined, water resistant, faux fur, zipper closure, machine wash : color, size : 40 : 260
backpacks; fashion; Luggage > Bags > Backpacks; travel backpack, school backpack, hiking backpack
 : water resistant, padded straps, laptop sleeve, carry on, light weight : color, size : 20 : 150
headphones; electronics; Electronics > Audio > Headphones; wireless headphones, bluetooth earbuds, gaming headset
 : noise cancelling, long lasting, fast charging, hands free, high resolution : color : 18 : 320
charging cables; electronics; Electronics > Accessories > Cables; usb cable, charging cable, hdmi cable
 : fast charging, gold plated, heavy duty, high speed, tangle free : color, length : 6 : 45
phone cases; electronics; Electronics > Phones > Cases; phone case, wallet case, bumper case
 : shock absorbing, wireless charging, easy install, carbon fiber, screen protector : color : 8 : 60
portable speakers; electronics; Electronics > Audio > Speakers; bluetooth speaker, shower speaker, outdoor speaker
 : stereo sound, water resistant, long lasting, hands free, easy carry : color : 15 : 240
area rugs; garden; Home > Decor > Rugs > Area Rugs; area rug, runner rug, bath rug
 : non slip, machine washable, spot clean, easy clean, fade resistant : color, size : 20 : 400
curtains; garden; Home > Decor > Windows > Curtains; blackout curtains, sheer curtains, kitchen curtains
 : energy efficient, machine washable, easy install, noise reducing, fade resistant : color, length : 15 : 130
bedding sets; garden; Home > Bedroom > Bedding; sheet set, duvet cover, comforter set
 : super soft, machine washable, wrinkle free, fade resistant, deep pocket : color, width : 25 : 220
coffee tables; garden; Home > Furniture > Living Room > Tables; coffee table, side table, console table
 : solid wood, easy assemble, metal legs, storage space, heavy duty : color, size : 45 : 700
desk lamps; garden; Home > Lighting > Lamps; desk lamp, floor lamp, reading lamp
 : energy efficient, touch control, eye friendly, easy assemble, usb port : color : 18 : 190
shampoo; beauty; Beauty > Hair Care > Shampoo; repair shampoo, dandruff shampoo, volume shampoo
 : sulfate free, paraben free, tea tree, argan oil, cruelty free : scent, pack : 7 : 60
face creams; beauty; Beauty > Skin Care > Face > Creams; night cream, day cream, eye cream
 : anti aging, fragrance free, hyaluronic acid, cruelty free, dry skin : scent, pack : 9 : 95
lip balms; beauty; Beauty > Makeup > Lips; lip balm, lip gloss, lip mask
 : long lasting, paraben free, shea butter, cruelty free, dry skin : flavor, pack : 4 : 30
hair brushes; beauty; Beauty > Hair Care > Brushes; detangling brush, round brush, paddle brush
 : anti static, eco friendly, heat resistant, non slip, easy clean : color : 6 : 50
green tea; grocery; Grocery > Beverages > Tea; green tea, herbal tea, matcha powder
 : caffeine free, usda organic, sugar free, non gmo, gluten free : flavor, pack : 6 : 55
snack bars; grocery; Grocery > Snacks > Bars; protein bars, granola bars, fruit bars
 : gluten free, low sugar, keto friendly, non gmo, dairy free : flavor, pack : 8 : 65
coffee beans; grocery; Grocery > Beverages > Coffee; coffee beans, ground coffee, espresso beans
 : fair trade, usda organic, low acid, freshly roasted, non gmo : flavor, pack : 9 : 80
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _kinds() -> tuple[Kind, ...]:
    found = []
    for line in _TABLE.replace("\n :", " :").strip().splitlines():
        goods, attributes, groups, low, high = (part.strip() for part in line.split(" : "))
        query, department, path, types = (part.strip() for part in goods.split(";"))
        found.append(
            Kind(
                query,
                department,
                path.replace(" > ", " \u203a "),
                _words(types),
                _words(attributes),
                _words(groups),
                float(low),
                float(high),
            )
        )
    return tuple(found)


KINDS = _kinds()
