// Package governor limits how many namespaces are deleted a minute.
//
// Unlike the product's, which is kept in the API server for all replicas together, this one is in memory: it is enough
// for a benchmark, and costs no request.
package governor

import (
	"sync"
	"time"
)

const window = time.Minute

// Governor permits at most so many steps within any minute. Its zero value permits everything.
type Governor struct {
	mu    sync.Mutex
	limit int
	// When the steps of the last minute were reserved, the oldest first.
	reserved []time.Time
}

// New returns a governor for that many steps a minute; 0 means no limit.
func New(perMinute int) *Governor {
	return &Governor{limit: perMinute}
}

// Reserve takes one step out of the budget. If the budget is spent it takes nothing and says when to ask again.
func (g *Governor) Reserve(now time.Time) (retryAt time.Time, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limit <= 0 {
		return time.Time{}, true
	}
	for len(g.reserved) > 0 && now.Sub(g.reserved[0]) >= window {
		g.reserved = g.reserved[1:]
	}
	if len(g.reserved) >= g.limit {
		return g.reserved[0].Add(window), false
	}
	g.reserved = append(g.reserved, now)
	return time.Time{}, true
}
