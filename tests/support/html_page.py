"""HTML taken apart, for tests of what a page holds."""

import base64
import html.parser

VOID = {"meta", "link", "img", "br", "input"}


class Page(html.parser.HTMLParser):
    """Elements of a page with their texts; fails where one is not closed."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        sections = [x["id"] for x in self.open if x["tag"] == "section"]
        part = sections[0] if sections else None
        element = {"tag": tag, "text": "", "part": part, **dict(attrs)}
        self.elements.append(element)
        if tag in VOID:
            self.handle_data(" ")
        else:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag
        self.handle_data(" ")

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attributes):
        return [
            element
            for element in self.elements
            if element["tag"] == tag and attributes.items() <= element.items()
        ]

    def part(self, name):
        (section,) = self.all("section", id=name)
        return " ".join(section["text"].split())


def decoded(element) -> tuple[str, bytes]:
    """Kind and content of the data URI that an image shows."""
    kind, content = element["src"].split(";base64,")
    return kind, base64.b64decode(content)
