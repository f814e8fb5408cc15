"""The rules of the peer: `python3 -m unittest` in this folder."""

import datetime
import types
import unittest

from ska_peer import PREFIX, Entry, entry_of, next_state

CREATED = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def namespace(name="ci-1", labels=None, **annotations):
    written = {PREFIX + key: value for key, value in annotations.items()}
    metadata = types.SimpleNamespace(name=name, labels=labels, annotations=written, creation_timestamp=CREATED)
    return types.SimpleNamespace(metadata=metadata)


class Selectors(unittest.TestCase):
    def test_a_pattern_covers_the_whole_name(self):
        entry = Entry(names=["ci-.*"])
        self.assertIs(entry_of([entry], namespace("ci-1")), entry)
        self.assertIsNone(entry_of([entry], namespace("my-ci-1")))

    def test_the_highest_score_wins_and_then_the_first(self):
        team = [{"labels": {"team": "a"}}]
        by_name, by_any, by_all = Entry(names=["ci-.*"]), Entry(any=team), Entry(all=team)
        self.assertIs(entry_of([by_name, by_any], namespace(labels={"team": "a"})), by_any)
        self.assertIs(entry_of([by_any, by_name, by_all], namespace(labels={"team": "a"})), by_all)
        self.assertIs(entry_of([by_name, Entry(names=["ci-1"])], namespace()), by_name)

    def test_parts_of_an_entry_are_alternatives(self):
        entry = Entry(names=["ci-.*"], all=[{"labels": {"team": "a"}}])
        self.assertEqual(entry.score(namespace(labels={"team": "a"})), 5)
        self.assertEqual(entry.score(namespace(labels={"team": "b"})), 1)


class States(unittest.TestCase):
    entry = Entry(ttl=600, settling_period=60, grace_period=30)

    def state(self, seconds, failing, **annotations):
        at = CREATED + datetime.timedelta(seconds=seconds)
        return next_state(self.entry, namespace(**annotations), failing, at)

    def test_age_comes_before_health(self):
        self.assertEqual(self.state(599, [], status="unknown"), "ok")
        self.assertEqual(self.state(600, ["app"], status="ok"), "stale")

    def test_a_failure_goes_one_step_at_a_time(self):
        since = CREATED.isoformat()
        self.assertEqual(self.state(1, ["app"], status="ok", status_timestamp=since), "unstable")
        self.assertEqual(self.state(60, ["app"], status="unstable", status_timestamp=since), "unstable")
        self.assertEqual(self.state(61, ["app"], status="unstable", status_timestamp=since), "failing")
        self.assertEqual(self.state(31, ["app"], status="failing", status_timestamp=since), "failed")
        self.assertEqual(self.state(99, [], status="failed", status_timestamp=since), "ok")


if __name__ == "__main__":
    unittest.main()
