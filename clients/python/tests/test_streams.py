import json

import pytest

from durable_rollouts.streams import Events, Lines


def test_only_newlines_end_a_line():
    text = json.dumps({"said": "a\u2028b\x85c"}, ensure_ascii=False).encode()
    lines = Lines()
    cut = [line for byte in text + b"\nrest" for line in lines.feed(bytes([byte]))]
    assert cut == [text]
    assert Lines().feed(b"a\n\nb\n") == [b"a", b"", b"b"]


def read(events: Events, text: str):
    return [event for line in text.encode().split(b"\n") if (event := events.read(line))]


def test_events_go_on_after_the_last_whole_one():
    events = Events("b", 0)
    assert events.call().headers["last-event-id"] == "0"
    sent = 'id: 1\nevent: started\ndata: {"at":"t","groupId":"g"}\n\n: nothing new\n\nid: 2\nevent: admitted'
    (first,) = read(events, sent)
    assert (first.number, first.kind, first.group_id) == (1, "started", "g")
    assert events.call().headers["last-event-id"] == "1"
    assert not events.over
    (last,) = read(events, 'id: 3\nevent: ended\ndata: {"at":"t","why":"full"}\n\n')
    assert (last.number, last.why, events.over) == (3, "full", True)


def test_an_event_that_is_none_is_an_error():
    with pytest.raises(KeyError):
        read(Events("b", 0), "data: {}\n\n")
