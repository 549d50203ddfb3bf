"""Lays a page out in headless Chromium, as wide as a test wants it, and measures it there."""

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import unquote

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# A window of Chromium is never narrower than 500 pixels. So the page stands in a frame of its own, whose
# width its media queries see.
FRAME = """<!doctype html><meta charset='utf-8'><style>body {{ margin: 0; }}
iframe {{ border: 0; width: {width}px; height: {height}px; }}</style>
<iframe {page}></iframe>
"""

# Prints the result of a function's body when the page is loaded.
EVALUATE = """<script>
window.onload = () => {{
  const frame = document.querySelector('iframe'), view = frame.contentWindow, page = view.document;
  const found = (() => {{ {script} }})();
  frame.remove();
  document.body.innerHTML = '<pre id=measured>' + encodeURIComponent(JSON.stringify(found)) + '</pre>';
}};
</script>
"""

MEASURE = r"""<script>
function scrolls(element) {  // by itself or in a box around it
  for (let box = element; box && box.tagName != 'BODY'; box = box.parentElement)
    if (/auto|scroll/.test(getComputedStyle(box).overflowX)) return true;
  return false;
}
function name(element) {
  return element.tagName.toLowerCase() + (element.className ? '.' + element.className : '') + ': ' +
    element.textContent.trim().slice(0, 60);
}
// Of text that is not preformatted; names with hyphens are words.
function brokenWords(page) {
  const found = [], texts = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  const range = page.createRange();
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (node.parentElement.closest('pre')) continue;
    for (const word of node.data.matchAll(/[\p{L}\p{N}_-]+/gu)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(rect => Math.round(rect.top)));
      if (lines.size > 1) found.push(word[0] + ' in ' + name(node.parentElement));
    }
  }
  return found;
}
function measured(page) {
  const width = page.documentElement.clientWidth;
  const outside = [...page.body.querySelectorAll('*')].filter(element => {
    const box = element.getBoundingClientRect();
    return box.width && (box.right > width + 1 || box.left < -1) && !scrolls(element.parentElement);
  });
  return {width: width, scroll_width: page.documentElement.scrollWidth,
          height: page.documentElement.scrollHeight, outside: outside.map(name),
          broken_words: brokenWords(page),
          figures: [...page.querySelectorAll('figure img')].map(
            image => image.clientWidth / parseFloat(image.style.getPropertyValue('--width')))};
}
window.onload = () => {
  const frame = document.querySelector('iframe'), page = frame.contentDocument;
  const found = {folded: measured(page)};
  for (const each of page.querySelectorAll('details')) each.open = true;
  found.unfolded = measured(page);
  frame.remove();
  document.body.innerHTML = '<pre id=measured>' + encodeURIComponent(JSON.stringify(found)) + '</pre>';
};
</script>
"""


def program():
    """The path of the first Chromium on the search path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def _run(page, width, height, script, *options):
    with tempfile.TemporaryDirectory(prefix="sparfuse-browser-") as folder:
        file = Path(folder) / "frame.html"
        frame = FRAME.format(width=width, height=height, page=page)
        file.write_text(frame + script, encoding="utf-8")
        command = [program(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--virtual-time-budget=20000", f"--user-data-dir={folder}/profile", *options]
        return subprocess.run(
            [*command, file.as_uri()], capture_output=True, text=True, timeout=120, check=True
        ).stdout


def _text(page):
    return f"srcdoc='{html.escape(page, quote=True)}'"


def _printed(page, width, script, *options):
    printed = _run(page, width, 900, script, "--dump-dom", *options)
    found = re.search(r'<pre id="measured">([^<]*)</pre>', printed)
    if not found:
        raise RuntimeError(f"{program()} printed no measurement: {printed[-500:]}")
    return json.loads(unquote(found.group(1)))


def measure(page, width):
    """The page's layout at a width in pixels, with its details folded and unfolded: {"folded" and
    "unfolded": {width, scroll_width, height, outside, broken_words, figures}}."""
    return _printed(_text(page), width, MEASURE)


def evaluate(file, script, address="", width=1200):
    """The value that JavaScript returns about the page in a file. script: the body of a function, which
    sees `page`, the document, and `view`, its window. address: "#..." after the file's address."""
    place = html.escape(Path(file).resolve().as_uri() + address, quote=True)
    frame = f"src='{place}'"
    return _printed(frame, width, EVALUATE.format(script=script), "--allow-file-access-from-files")


def picture(page, width, height, file):
    """Writes the page's first `height` pixels as a PNG."""
    size = f"--window-size={max(500, width)},{height}"
    _run(_text(page), width, height, "", f"--screenshot={Path(file).resolve()}", size)
