import json

from trainer.journal import Journal


def checkpoint(folder, version):
    """As Policy.save leaves it."""
    place = folder / "checkpoints" / str(version)
    place.mkdir(parents=True)
    (place / "step.json").write_text(json.dumps({"version": version, "groups": [f"g{version}"]}))


def test_a_run_begins_with_the_base(tmp_path):
    journal = Journal(tmp_path / "run", tmp_path / "base")
    assert journal.version == 0
    assert journal.weights(0) == tmp_path / "base"
    assert journal.rows() == []


def test_a_step_whose_line_was_not_written_is_caught_up_once(tmp_path):
    folder = tmp_path / "run"
    journal = Journal(folder, tmp_path / "base")
    checkpoint(folder, 1)
    journal.close_step()
    checkpoint(folder, 2)  # killed here
    again = Journal(folder, tmp_path / "base")
    assert [row["version"] for row in again.rows()] == [1, 2]
    assert [row["version"] for row in Journal(folder, tmp_path / "base").rows()] == [1, 2]


def test_a_draft_is_no_checkpoint_and_goes(tmp_path):
    folder = tmp_path / "run"
    journal = Journal(folder, tmp_path / "base")
    for version in (1, 2, 3):
        checkpoint(folder, version)
        journal.close_step()
    (folder / "checkpoints" / "4.draft").mkdir()
    assert journal.version == 3
    journal.close_step()
    assert sorted(one.name for one in (folder / "checkpoints").iterdir()) == ["2", "3"]
