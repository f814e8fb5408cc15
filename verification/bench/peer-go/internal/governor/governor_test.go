package governor

import (
	"testing"
	"time"
)

var start = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func TestWithoutALimitEverythingIsPermitted(t *testing.T) {
	g := New(0)
	for range 1000 {
		if _, ok := g.Reserve(start); !ok {
			t.Fatal("refused without a limit")
		}
	}
}

func TestNoMinuteHasMoreStepsThanTheLimit(t *testing.T) {
	g := New(3)
	var reserved []time.Time
	for now := start; now.Before(start.Add(5 * time.Minute)); now = now.Add(time.Second) {
		if _, ok := g.Reserve(now); ok {
			reserved = append(reserved, now)
		}
	}
	if len(reserved) != 15 {
		t.Errorf("%d steps in five minutes, want 15", len(reserved))
	}
	for i := 3; i < len(reserved); i++ {
		if gap := reserved[i].Sub(reserved[i-3]); gap < time.Minute {
			t.Errorf("four steps within %s", gap)
		}
	}
}

func TestARefusalSaysWhenToAskAgain(t *testing.T) {
	g := New(1)
	if _, ok := g.Reserve(start); !ok {
		t.Fatal("the first step is refused")
	}
	retryAt, ok := g.Reserve(start.Add(20 * time.Second))
	if ok || !retryAt.Equal(start.Add(time.Minute)) {
		t.Fatalf("got %v, %v; want a refusal until the first step is a minute old", retryAt, ok)
	}
	if _, ok := g.Reserve(retryAt.Add(-time.Nanosecond)); ok {
		t.Error("permitted before that time")
	}
	if _, ok := g.Reserve(retryAt); !ok {
		t.Error("refused at that time")
	}
}
