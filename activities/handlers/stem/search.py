"""Searches a task's documents: a JSON object on standard input, one as the answer. The index is made anew each time:
it takes less time than Python's start, and nothing that an agent changes stays wrong."""

import json
import re
import sqlite3
import sys

PASSAGE = 800


def passages(document):
    """Paragraphs, put together to about one size."""
    part = ""
    for paragraph in re.split(r"\n\s*\n", document["text"]):
        if part and len(part) + len(paragraph) > PASSAGE:
            yield part
            part = ""
        part = f"{part}\n\n{paragraph}".strip()
    if part:
        yield part


def main():
    asked = json.load(sys.stdin)
    words = re.findall(r"\w+", asked["query"])
    if not words:
        return {"problem": "The query has no words."}
    try:
        with open(asked["file"], encoding="utf-8") as file:
            documents = json.load(file)
        index = sqlite3.connect(":memory:")
        index.execute("create virtual table passage using fts5(title, text, tokenize = 'porter unicode61')")
        for document in documents:
            rows = [(document["title"], text) for text in passages(document)]
            index.executemany("insert into passage values (?, ?)", rows)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"problem": f"The documents cannot be read: {error}"}
    query = " OR ".join(f'"{word}"' for word in words)
    found = index.execute(
        "select title, text from passage where passage match ? order by bm25(passage, 2.0) limit ?",
        (query, asked["most"]),
    ).fetchall()
    if not found:
        return {"results": "Nothing found."}
    return {"results": "\n\n".join(f"[{number}] {title}\n{text}" for number, (title, text) in enumerate(found, 1))}


json.dump(main(), sys.stdout)
