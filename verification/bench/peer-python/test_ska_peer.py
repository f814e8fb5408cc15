"""The rules of the peer: `python3 -m unittest` in this folder."""

import datetime
import types
import unittest

import ska_peer
from kubernetes import client
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


class Loops(unittest.TestCase):
    def manager(self, namespaces):
        """One with an API server that has these namespaces, refuses to delete the first, and lists no workloads."""
        manager = ska_peer.Manager.__new__(ska_peer.Manager)
        manager.entries, manager.forbidden, manager.next_check = [Entry(names=["ci-.*"], ttl=60)], set(), {}
        manager.notified, manager.deleted, manager.patched = [], [], []
        listed = types.SimpleNamespace(items=namespaces, metadata=types.SimpleNamespace(_continue=None))

        def delete(name, **_):
            if name == "ci-1":
                raise client.ApiException(status=403)
            manager.deleted.append(name)

        manager.core = types.SimpleNamespace(
            list_namespace=lambda **_: listed,
            delete_namespace=delete,
            patch_namespace=lambda name, body, **_: manager.patched.append((name, body["metadata"]["annotations"])),
        )
        manager.slack = types.SimpleNamespace(notify=lambda _, text: manager.notified.append(text))
        return manager

    def governed(self, name, status):
        found = namespace(name, managed="true", status=status)
        found.status = types.SimpleNamespace(phase="Active")
        return found

    def test_a_deletion_that_is_refused_keeps_no_other_waiting_and_nobody_is_notified_of_it(self):
        manager = self.manager([self.governed("ci-1", "stale"), self.governed("ci-2", "stale")])
        manager.act()
        self.assertEqual(manager.deleted, ["ci-2"])
        self.assertEqual(manager.notified, ["Your namespace ci-2 was deleted, since it was stale."])

    def test_what_a_ttl_decides_needs_no_list_of_workloads(self):
        manager = self.manager([self.governed("ci-1", "ok")])
        manager.failing_workloads = lambda: self.fail("listed")
        manager.check_due()
        self.assertEqual([(name, said[PREFIX + "status"]) for name, said in manager.patched], [("ci-1", "stale")])


if __name__ == "__main__":
    unittest.main()
