"""The report: sections of text, pictures and tables, as one page of HTML and as a short one of Markdown."""

import dataclasses
import html

from report import number


@dataclasses.dataclass
class Table:
    head: list
    rows: list
    # Whether it stands in the short report too.
    is_short: bool = False


@dataclasses.dataclass
class Section:
    title: str
    paragraphs: list = dataclasses.field(default_factory=list)
    # Text of SVG.
    pictures: list = dataclasses.field(default_factory=list)
    tables: list = dataclasses.field(default_factory=list)


STYLE = """
body { font-family: sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; color: #222; line-height: 1.4 }
table { border-collapse: collapse; margin: 0.6em 0; font-size: 14px }
td, th { border: 1px solid #ccc; padding: 2px 8px; text-align: right }
td:first-child, th:first-child { text-align: left }
th { background: #f2f2f2 }
.pictures { display: flex; flex-wrap: wrap; gap: 12px }
.words td { text-align: left }
details { margin: 0.6em 0 }
summary { cursor: pointer; color: #1f5fa8 }
nav { column-width: 22em }
"""


def cell(value):
    if value is None:
        return ""
    return number(value) if isinstance(value, float) else str(value)


def html_table(table):
    is_words = any(isinstance(value, str) and " " in value for row in table.rows for value in row[1:])
    out = [f'<table{" class=words" if is_words else ""}><tr>']
    out += [f"<th>{html.escape(str(name))}</th>" for name in table.head]
    for row in table.rows:
        out.append("</tr><tr>" + "".join(f"<td>{html.escape(cell(value))}</td>" for value in row))
    return "".join(out) + "</tr></table>"


def as_html(title, sections):
    """A page that needs nothing besides itself."""
    out = ["<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">', f"<title>{html.escape(title)}</title>"]
    out += [f"<style>{STYLE}</style></head><body>", f"<h1>{html.escape(title)}</h1>", "<nav>"]
    for index, section in enumerate(sections):
        out.append(f'<div><a href="#s{index}">{html.escape(section.title)}</a></div>')
    out.append("</nav>")
    for index, section in enumerate(sections):
        out.append(f'<h2 id="s{index}">{html.escape(section.title)}</h2>')
        out += [f"<p>{html.escape(paragraph)}</p>" for paragraph in section.paragraphs]
        out += [html_table(table) for table in section.tables if table.is_short]
        if section.pictures:
            out += ['<div class="pictures">', *section.pictures, "</div>"]
        if behind := [table for table in section.tables if not table.is_short]:
            out += ["<details><summary>the numbers</summary>", *map(html_table, behind), "</details>"]
    out.append("</body></html>")
    return "\n".join(out) + "\n"


def as_markdown(title, sections):
    """The text and the tables that say most."""
    out = [f"# {title}"]
    for section in sections:
        tables = [table for table in section.tables if table.is_short]
        if tables or not section.pictures:
            out += [f"## {section.title}", *section.paragraphs, *map(markdown_table, tables)]
    return "\n\n".join(out) + "\n"


def markdown_table(table):
    lines = [table.head, ["---", *["---:"] * (len(table.head) - 1)], *table.rows]
    return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines)
