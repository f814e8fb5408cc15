"""A controller that polls, as the SKA Namespace Manager (0.3.3) is documented to: what Coppice is measured beside in
`coppice-bench notices`. It is written from a description of that program's behaviour and shares no code with it. Nobody
should run it on a cluster that matters.

Reproduced, with the documented defaults of the chart, and Prometheus off:
  - the periods: adoption 1 s, assignment of checks 5 s, a check of each namespace every 60 s, actions 5 s;
  - the selectors: `names` (regular expressions over the whole name), `any` and `all` (lists of labels and annotations);
    what matches scores 1, 2 and 4, the scores of an entry add up, the highest wins, then the first of the list;
  - the states: `unknown` once adopted; `stale` at creation + ttl, before health is looked at; `ok`; `unstable` while
    something fails, `failing` after the settling period, `failed` after the grace period. Health without Prometheus: a
    Deployment, StatefulSet or ReplicaSet with fewer available than wanted replicas (of its status);
  - annotations on the namespace as the only memory, written by unconditional merge patches;
  - `stale` and `failed` are deleted, with grace 0 and without preconditions, and the owner is notified after that, once, by
    `chat.postMessage` to the address in `notificationAddress`; of `unstable` and `failing` it is notified when they begin.

Made cheaper than documented, so that the comparison errs in its favour:
  - one list in pages of 500 for each kind and round, shared by all checks and all actions of that round. The original
    makes a list in one piece for each of its five action tasks, and for each check of each namespace a GET and three
    lists of that namespace;
  - a namespace is patched when its annotations change, and not after every check;
  - one process in the place of four;
  - an error of one namespace ends nothing; of a deletion that is refused nobody is notified.

Made dearer or later than documented:
  - one thread for each loop in the place of one for each namespace: what a round does comes one after the other;
  - a period runs from start to start, which is earlier, and more requests;
  - paging: of more than 500 namespaces each list is several requests.

Left out, with their requests: superseding and GitLab, with the lists of their two action tasks; Prometheus; leader
election and the reads of the StatefulSet for sharding; files of metrics; the heartbeat; the people API; two of the
annotations of a check.
"""

import argparse
import base64
import contextlib
import dataclasses
import datetime
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import urllib3
from kubernetes import client, config

PREFIX = "manager.cicd.skao.int/"
ADDRESS = "cicd.skao.int/notificationAddress"
FORBIDDEN = {"default", "kube-system", "kube-public", "kube-node-lease"}
PAGE = 500
REQUEST_TIMEOUT = 10

ADOPT_PERIOD = 1.0
ASSIGN_PERIOD = 5.0
CHECK_PERIOD = 60.0
ACT_PERIOD = 5.0

DELETED_STATES = {"stale", "failed"}
NOTIFIED_STATES = {"unstable", "failing"}

log = logging.getLogger("ska-peer")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of the configuration: which namespaces, and their times."""

    names: list[str] = dataclasses.field(default_factory=list)
    any: list[dict[str, dict[str, str]]] = dataclasses.field(default_factory=list)
    all: list[dict[str, dict[str, str]]] = dataclasses.field(default_factory=list)
    ttl: float | None = None
    settling_period: float = 300.0
    grace_period: float = 120.0

    def score(self, namespace: Any) -> int:
        """How well it matches; 0 if not at all. Any of its three parts is enough."""
        score = 0
        if any(re.fullmatch(pattern, namespace.metadata.name) for pattern in self.names):
            score += 1
        if self.any and any(holds(condition, namespace) for condition in self.any):
            score += 2
        if self.all and all(holds(condition, namespace) for condition in self.all):
            score += 4
        return score


def holds(condition: dict[str, dict[str, str]], namespace: Any) -> bool:
    """Whether a namespace has every label and annotation of a condition, with these values."""
    parts = (("labels", namespace.metadata.labels), ("annotations", namespace.metadata.annotations))
    return all((has or {}).get(key) == value for part, has in parts for key, value in condition.get(part, {}).items())


def entry_of(entries: list[Entry], namespace: Any) -> Entry | None:
    """The entry that a namespace belongs to: of the highest score the first."""
    best = max(entries, key=lambda entry: entry.score(namespace), default=None)
    return best if best is not None and best.score(namespace) > 0 else None


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def stamp(at: datetime.datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def pages(listed: Callable[..., Any]) -> Iterator[Any]:
    """Everything of a kind, page by page, so that no more than one page is held unless the caller keeps it."""
    continued: str | None = None
    while True:
        page = listed(limit=PAGE, _continue=continued, _request_timeout=REQUEST_TIMEOUT)
        yield from page.items
        # The client gives the snake-cased field a leading underscore.
        continued = page.metadata._continue
        if not continued:
            return


def is_over(entry: Entry, namespace: Any, at: datetime.datetime) -> bool:
    """Whether the ttl of a namespace is over."""
    age = (at - namespace.metadata.creation_timestamp).total_seconds()
    return entry.ttl is not None and age >= entry.ttl


@contextlib.contextmanager
def going_on(what: str, name: str) -> Iterator[None]:
    """One namespace that fails keeps no other one waiting."""
    try:
        yield
    except (client.ApiException, urllib3.exceptions.HTTPError) as error:
        log.warning("%s of %s: %s", what, name, error)


def next_state(entry: Entry, namespace: Any, failing: list[str], at: datetime.datetime) -> str:
    """The state that a check leads to: one step."""
    annotations = namespace.metadata.annotations or {}
    state = annotations.get(PREFIX + "status", "unknown")
    if is_over(entry, namespace, at):
        return "stale"
    if not failing:
        return "ok"
    since = datetime.datetime.fromisoformat(annotations.get(PREFIX + "status_timestamp") or stamp(at))
    waited = (at - since).total_seconds()
    if state in ("unknown", "ok"):
        return "unstable"
    if state == "unstable" and waited > entry.settling_period:
        return "failing"
    if state == "failing" and waited > entry.grace_period:
        return "failed"
    return state


class Manager:
    """The three loops. They share nothing but the annotations of namespaces and the list of what is checked when."""

    def __init__(self, entries: list[Entry], own_namespace: str, slack: "Slack") -> None:
        self.core = client.CoreV1Api()
        self.apps = client.AppsV1Api()
        self.entries = entries
        self.forbidden = FORBIDDEN | {own_namespace}
        self.slack = slack
        # When the next check of a namespace is due, by its name. Only the loop of checks uses it.
        self.next_check: dict[str, float] = {}

    def namespaces(self) -> Iterator[tuple[Any, dict[str, str]]]:
        """The namespaces that it may touch, each with its annotations."""
        for namespace in pages(self.core.list_namespace):
            if namespace.metadata.name not in self.forbidden:
                yield namespace, namespace.metadata.annotations or {}

    def patch(self, name: str, annotations: dict[str, str | None]) -> None:
        """Writes some annotations; those that are None go away."""
        body = {"metadata": {"annotations": {PREFIX + key: value for key, value in annotations.items()}}}
        self.core.patch_namespace(
            name, body, _content_type="application/merge-patch+json", _request_timeout=REQUEST_TIMEOUT
        )

    def adopt(self) -> None:
        """Takes over what matches and is not managed yet."""
        for namespace, annotations in self.namespaces():
            if annotations.get(PREFIX + "managed") != "true" and entry_of(self.entries, namespace):
                name = namespace.metadata.name
                with going_on("adopt", name):
                    self.patch(name, {"managed": "true", "status": "unknown", "namespace": name})

    def check_due(self) -> None:
        """Checks the namespaces whose time has come; new ones at once."""
        managed = {
            namespace.metadata.name: namespace
            for namespace, annotations in self.namespaces()
            if annotations.get(PREFIX + "managed") == "true"
        }
        at = time.monotonic()
        self.next_check = {name: self.next_check.get(name, at) for name in managed}
        due = [name for name, when in self.next_check.items() if when <= at]
        # What a ttl decides needs no workloads.
        due.sort(key=lambda name: not self.is_stale(managed[name]))
        failing: dict[str, set[str]] | None = None
        for name in due:
            if failing is None and not self.is_stale(managed[name]):
                failing = self.failing_workloads()
            self.next_check[name] += CHECK_PERIOD
            with going_on("check", name):
                self.check(managed[name], sorted((failing or {}).get(name, ())))

    def is_stale(self, namespace: Any) -> bool:
        """Whether its ttl is over."""
        entry = entry_of(self.entries, namespace)
        return entry is not None and is_over(entry, namespace, now())

    def failing_workloads(self) -> dict[str, set[str]]:
        """The names of what lacks replicas, by namespace: one list for each kind."""
        failing: dict[str, set[str]] = {}
        apps = self.apps
        for listed in (
            apps.list_deployment_for_all_namespaces,
            apps.list_stateful_set_for_all_namespaces,
            apps.list_replica_set_for_all_namespaces,
        ):
            for workload in pages(listed):
                if (workload.status.available_replicas or 0) < (workload.status.replicas or 0):
                    failing.setdefault(workload.metadata.namespace, set()).add(workload.metadata.name)
        return failing

    def check(self, namespace: Any, failing: list[str]) -> None:
        """Brings the annotations of a namespace up to date."""
        entry = entry_of(self.entries, namespace)
        if entry is None:
            return
        at, known = now(), namespace.metadata.annotations
        state = next_state(entry, namespace, failing, at)
        wanted: dict[str, str | None] = {"status": state}
        if state != known.get(PREFIX + "status"):
            wanted |= {"status_timestamp": stamp(at), "notified_timestamp": None, "notified_status": None}
        if state == "stale" and entry.ttl is not None:
            end = namespace.metadata.creation_timestamp + datetime.timedelta(seconds=entry.ttl)
            wanted["status_finalize_at"] = stamp(end)
        else:
            wanted["failing_resources"] = json.dumps(failing)
        if any(known.get(PREFIX + key) != value for key, value in wanted.items()):
            self.patch(namespace.metadata.name, wanted)

    def act(self) -> None:
        """Deletes and notifies, one namespace after the other."""
        for namespace, annotations in self.namespaces():
            if annotations.get(PREFIX + "managed") != "true" or entry_of(self.entries, namespace) is None:
                continue
            name, state = namespace.metadata.name, annotations.get(PREFIX + "status", "")
            with going_on("act", name):
                if state in DELETED_STATES and namespace.status.phase != "Terminating":
                    self.core.delete_namespace(name, grace_period_seconds=0, _request_timeout=REQUEST_TIMEOUT)
                    self.slack.notify(annotations, f"Your namespace {name} was deleted, since it was {state}.")
                elif state in NOTIFIED_STATES and PREFIX + "notified_timestamp" not in annotations:
                    if self.slack.notify(annotations, f"Your namespace {name} is {state}."):
                        self.patch(name, {"notified_timestamp": stamp(now()), "notified_status": state})


class Slack:
    """Direct messages by a bot."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/") + "/chat.postMessage"
        self.headers = {"authorization": f"Bearer {token}"}
        self.http = urllib3.PoolManager(timeout=REQUEST_TIMEOUT, retries=False)

    def notify(self, annotations: dict[str, str], text: str) -> bool:
        """Notifies the owner; whether Slack has taken it. Without an address nobody is notified."""
        if ADDRESS not in annotations:
            return False
        try:
            _, _, member = base64.b64decode(annotations[ADDRESS], validate=True).decode().partition("::")
            body = {"channel": member, "text": text}
            answer = self.http.request("POST", self.url, json=body, headers=self.headers)
            taken = answer.status == 200 and answer.json().get("ok") is True
        except (ValueError, AttributeError, urllib3.exceptions.HTTPError) as error:
            log.warning("a message is lost: %s", error)
            return False
        if not taken:
            log.warning("a message is lost: Slack answers %s", answer.status)
        return taken


def repeat(period: float, task: Callable[[], None]) -> None:
    """Does a task again and again. A round that fails is logged, and the next one begins as if it had not."""
    while True:
        begun = time.monotonic()
        try:
            task()
        except Exception as error:  # as the original does: a loop never ends
            log.warning("%s: %s", task.__name__, error)
        time.sleep(max(0.0, begun + period - time.monotonic()))


def main() -> None:
    parser = argparse.ArgumentParser(description="The SKA Namespace Manager's loops, for comparison.")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--config", required=True, help="a file with a JSON list of entries; times in seconds")
    parser.add_argument("--slack-url", required=True)
    parser.add_argument("--slack-token", default="xoxb-peer")
    parser.add_argument("--namespace", default="coppice-system", help="its own, which it never touches")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    config.load_kube_config(arguments.kubeconfig)
    # A DELETE that is repeated unseen would be answered 404, and its owner not notified.
    settings = client.Configuration.get_default_copy()
    settings.retries = False
    client.Configuration.set_default(settings)
    with open(arguments.config, encoding="utf-8") as file:
        entries = [Entry(**entry) for entry in json.load(file)]
    manager = Manager(entries, arguments.namespace, Slack(arguments.slack_url, arguments.slack_token))
    tasks = ((ADOPT_PERIOD, manager.adopt), (ASSIGN_PERIOD, manager.check_due), (ACT_PERIOD, manager.act))
    threads = [threading.Thread(target=repeat, args=task, name=task[1].__name__) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
