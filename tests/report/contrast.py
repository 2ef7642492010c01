"""The contrast of a text and its ground, by the formula of WCAG 2.1, as a script for the browser."""

CONTRAST = """(selector) => {
  const linear = (x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  const parse = (c) => c.match(/[\\d.]+/g).slice(0, 3).map((x) => linear(x / 255));
  const light = (c) => { const [r, g, b] = parse(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const element = document.querySelector(selector);
  let below = element;
  while (below && getComputedStyle(below).backgroundColor === "rgba(0, 0, 0, 0)") below = below.parentElement;
  const both = [light(getComputedStyle(element).color), light(getComputedStyle(below).backgroundColor)];
  const [a, b] = both.sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""
