package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time as users write it: numbers with units, the largest first, each once, such as "90s",
// "1h30m", "7d" or "2w".
//
// It is read when it is used and not when it is decoded: an object with a bad one must not stop the informer of its
// kind.
type Duration string

// maxDuration is about a century, as in the product: sums with instants stay in range.
const maxDuration = 36525 * 24 * time.Hour

var units = []struct {
	name byte
	size time.Duration
}{
	{'w', 7 * 24 * time.Hour},
	{'d', 24 * time.Hour},
	{'h', time.Hour},
	{'m', time.Minute},
	{'s', time.Second},
}

// Parse reads the duration.
func (d Duration) Parse() (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration: write numbers with the units w, d, h, m, s, such as 90s, 1h30m, 7d or 2w", string(d))
	if d == "" {
		return 0, bad
	}
	var total time.Duration
	rest, left := string(d), units
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits == 0 || digits == len(rest) {
			return 0, bad
		}
		// Units that were passed over cannot come any more.
		for len(left) > 0 && left[0].name != rest[digits] {
			left = left[1:]
		}
		if len(left) == 0 {
			return 0, bad
		}
		number, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil || number > int64((maxDuration-total)/left[0].size) {
			return 0, fmt.Errorf("%q is too long: at most 36525d", string(d))
		}
		total += time.Duration(number) * left[0].size
		left, rest = left[1:], rest[digits+1:]
	}
	return total, nil
}

// Instant is a point in time as users write it: RFC 3339 with a zone. Like a Duration it is read when it is used.
type Instant string

// Parse reads the instant.
func (i Instant) Parse() (time.Time, error) {
	// RFC 3339 and the CRD also permit t and z in lower case, which the time package does not.
	at, err := time.Parse(time.RFC3339, strings.ToUpper(string(i)))
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not an instant: write it with its zone, such as 2026-12-01T18:00:00Z", string(i))
	}
	return at, nil
}
