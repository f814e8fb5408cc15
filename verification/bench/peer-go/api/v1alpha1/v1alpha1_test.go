package v1alpha1

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestDurationsAreReadAsTheProductReadsThem(t *testing.T) {
	for text, want := range map[Duration]time.Duration{
		"90s":        90 * time.Second,
		"1h30m":      90 * time.Minute,
		"7d":         7 * 24 * time.Hour,
		"2w":         14 * 24 * time.Hour,
		"1w1d1h1m1s": 694_861 * time.Second,
		"0s":         0,
		"36525d":     36525 * 24 * time.Hour,
	} {
		if got, err := text.Parse(); err != nil || got != want {
			t.Errorf("%q: got %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []Duration{
		"", "300", "-5m", "5 m", "5min", "1.5h", "m", "5m ", "1ms", "h5", "1s1m", "1m1m", "1h5",
		"36526d", "36525d1s", "99999999999999999999s", "9223372036854775807w",
	} {
		if got, err := text.Parse(); err == nil {
			t.Errorf("%q is accepted as %s", text, got)
		}
	}
}

func TestInstantsAreReadAsTheCRDPermitsThem(t *testing.T) {
	want := time.Date(2026, 12, 1, 17, 0, 0, 0, time.UTC)
	for _, text := range []Instant{
		"2026-12-01T17:00:00Z", "2026-12-01T18:00:00+01:00", "2026-12-01t17:00:00z", "2026-12-01T17:00:00.000Z",
	} {
		if got, err := text.Parse(); err != nil || !got.Equal(want) {
			t.Errorf("%q: got %s, %v; want %s", text, got, err, want)
		}
	}
	if got, err := Instant("2026-12-01T17:00:00").Parse(); err == nil {
		t.Errorf("an instant without a zone is accepted as %s", got)
	}
}

const everything = `{
  "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager",
  "metadata": {"name": "m", "namespace": "n", "labels": {"a": "b"}},
  "spec": {
    "suspend": true, "rearm": 1, "wake": 2, "extendUntil": "2026-12-01T18:00:00Z",
    "hold": {"until": "2026-12-01T18:00:00Z", "reason": "r"},
    "policies": [
      {"name": "a", "when": {"ttl": {"after": "1h", "until": "2026-12-01T18:00:00Z"}}, "then": {"delete": {"notice": "5m"}}},
      {"name": "b", "when": {"podsSucceed": {"selector": {"matchLabels": {"c": "d"}}, "initialDelay": "1s", "minPods": 3,
        "settle": "2s", "ignoreRetried": false}}, "then": {"webhook": {"url": "http://a.b/", "format": "coppice"}}},
      {"name": "c", "when": {"podsSucceed": {}}, "then": {"scaleDown": {"selectors": [
        {"apiVersion": "a/v1", "kind": "K", "selector": {"matchLabels": {"e": "f"}}}]}}}
    ]
  },
  "status": {
    "observedGeneration": 1, "phase": "Pending", "firings": 1, "policiesDigest": "d",
    "next": {"action": "delete", "policy": "a", "due": "2026-12-01T18:00:00Z", "reason": "r", "message": "m"},
    "policies": [{"name": "a", "result": "False", "reason": "r", "message": "m", "since": "2026-12-01T18:00:00Z",
      "due": "2026-12-01T18:00:00Z"}],
    "notice": {"policy": "a", "uid": "u", "givenAt": "2026-12-01T18:00:00Z", "notBefore": "2026-12-01T18:00:00Z"},
    "lastFiring": {"id": "i", "policy": "a", "action": "delete", "at": "2026-12-01T18:00:00Z", "reason": "r", "digest": "d",
      "result": "r", "message": "m", "evidence": {"k": "v"}},
    "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "2026-12-01T18:00:00Z"}]
  }
}`

func TestACopyIsEqualAndSharesNothing(t *testing.T) {
	var original NamespaceManager
	if err := json.Unmarshal([]byte(everything), &original); err != nil {
		t.Fatal(err)
	}
	list := &NamespaceManagerList{Items: []NamespaceManager{original}}
	copied := list.DeepCopyObject().(*NamespaceManagerList)
	if !reflect.DeepEqual(list, copied) {
		t.Fatal("the copy differs")
	}
	assertNothingShared(t, "list", reflect.ValueOf(list), reflect.ValueOf(copied))
}

// assertNothingShared walks over two equal values and fails where both lead to the same memory.
func assertNothingShared(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() {
			return
		}
		// All instants may have the same location.
		if a.Type() == reflect.TypeFor[*time.Location]() {
			return
		}
		if a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared", path)
		}
		assertNothingShared(t, path, a.Elem(), b.Elem())
	case reflect.Map:
		if !a.IsNil() && a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared", path)
		}
	case reflect.Slice:
		if a.Len() > 0 && a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared", path)
		}
		for i := range a.Len() {
			assertNothingShared(t, path+"[]", a.Index(i), b.Index(i))
		}
	case reflect.Struct:
		for i := range a.NumField() {
			assertNothingShared(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	}
}
