"""The page of the server: the classes of a picture, and the attention."""

import functools

from keras_vit.prediction.picture_page import picture_page, shipped_text

__all__ = ["PAGE_HEADERS", "page"]

# Of the page itself; its policy stands in it, as in the other pages.
PAGE_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
ATTENTION = """\
<section data-attention hidden aria-labelledby="attention-title">
<h2 id="attention-title">What the model looks at</h2>
<p class="controls"><label>Show <select data-view></select></label></p>
<figure class="shown">
<img data-map alt="">
<figcaption data-caption aria-live="polite"></figcaption>
</figure>
</section>
"""


@functools.cache
def page() -> str:
    """The HTML of the page."""
    return picture_page(
        shipped_text("serving/page.js"),
        sources="'self'",
        promise="JPEG, PNG, WebP, GIF, BMP or TIFF. It is sent to this server "
        "and nowhere else.",
        without_script=" <code>POST /predict</code> answers without.",
        more=ATTENTION,
    )
