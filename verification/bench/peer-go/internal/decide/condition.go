package decide

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coppice.dev/bench/peer-go/api/v1alpha1"
)

// evaluation is the verdict on one policy.
type evaluation struct {
	result  metav1.ConditionStatus
	reason  string
	message string
	// When the condition becomes true, if that depends on time alone.
	due time.Time
	// When time alone can change the verdict.
	lookAt time.Time
	// Since when the condition has held, if it matters how long.
	since time.Time
	// What a true verdict rests on.
	evidence map[string]string
}

// evaluate judges every policy and records the verdicts. An error means that the spec cannot be understood.
func (d *draft) evaluate() ([]evaluation, error) {
	digest, err := digestOf(d.spec.Policies)
	if err != nil {
		return nil, err
	}
	d.digest = digest
	before := d.Status.Policies
	if d.Status.PoliciesDigest != digest {
		before = nil
	}
	evaluations := make([]evaluation, 0, len(d.spec.Policies))
	statuses := make([]v1alpha1.PolicyStatus, 0, len(d.spec.Policies))
	for i := range d.spec.Policies {
		policy := &d.spec.Policies[i]
		var previous *v1alpha1.PolicyStatus
		if at := slices.IndexFunc(before, func(s v1alpha1.PolicyStatus) bool { return s.Name == policy.Name }); at >= 0 {
			previous = &before[at]
		}
		e, err := d.evaluatePolicy(policy, previous)
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", policy.Name, err)
		}
		if !e.lookAt.IsZero() {
			d.lookNoLaterThan(e.lookAt)
		}
		if e.result == metav1.ConditionUnknown && d.unknown == nil {
			d.unknown = &e
		}
		since := e.since
		switch {
		case !since.IsZero():
		case previous != nil && previous.Result == e.result:
			since = previous.Since.Time
		default:
			since = d.now
		}
		statuses = append(statuses, v1alpha1.PolicyStatus{
			Name:    policy.Name,
			Result:  e.result,
			Reason:  e.reason,
			Message: e.message,
			Since:   *instant(since),
			Due:     instant(e.due),
		})
		evaluations = append(evaluations, e)
	}
	d.Status.Policies, d.Status.PoliciesDigest = statuses, digest
	return evaluations, nil
}

func (d *draft) evaluatePolicy(policy *v1alpha1.Policy, previous *v1alpha1.PolicyStatus) (evaluation, error) {
	if policy.Then.Delete != nil {
		if _, err := orDefault(policy.Then.Delete.Notice, 0); err != nil {
			return evaluation{}, fmt.Errorf("notice: %w", err)
		}
	}
	switch when := policy.When; {
	case when.TTL != nil && when.PodsSucceed == nil:
		return d.evaluateTTL(when.TTL)
	case when.PodsSucceed != nil && when.TTL == nil:
		return d.evaluatePods(when.PodsSucceed, previous)
	}
	return evaluation{}, fmt.Errorf("write exactly one condition in when: ttl or podsSucceed")
}

func (d *draft) evaluateTTL(ttl *v1alpha1.TTL) (evaluation, error) {
	var ends time.Time
	switch {
	case ttl.After != nil && ttl.Until == nil:
		after, err := ttl.After.Parse()
		if err != nil {
			return evaluation{}, fmt.Errorf("ttl.after: %w", err)
		}
		if after == 0 {
			return evaluation{}, fmt.Errorf("ttl.after must be at least 1s")
		}
		ends = d.sinceCreation(after)
	case ttl.Until != nil && ttl.After == nil:
		until, err := ttl.Until.Parse()
		if err != nil {
			return evaluation{}, fmt.Errorf("ttl.until: %w", err)
		}
		ends = until
	default:
		return evaluation{}, fmt.Errorf("write exactly one of after and until in ttl")
	}
	due, how := ends, ""
	if extended := d.spec.ExtendUntil; extended != nil {
		until, err := extended.Parse()
		if err != nil {
			return evaluation{}, fmt.Errorf("extendUntil: %w", err)
		}
		if until.After(ends) {
			due, how = until, " (extendUntil)"
		}
	}
	if d.now.Before(due) {
		return evaluation{
			result:  metav1.ConditionFalse,
			reason:  reasonTTLRunning,
			message: "the ttl ends at " + format(due) + how,
			due:     due,
			lookAt:  due,
		}, nil
	}
	return evaluation{
		result:  metav1.ConditionTrue,
		reason:  reasonTTLElapsed,
		message: "the ttl ended at " + format(due) + how,
		due:     due,
		evidence: map[string]string{
			"due":              format(due),
			"namespaceCreated": format(d.facts.Namespace.CreationTimestamp.Time),
		},
	}, nil
}

// sinceCreation is when the namespace is surely that old. Creation times are cut to whole seconds by the API server:
// the namespace may be almost a second younger than it looks.
func (d *draft) sinceCreation(by time.Duration) time.Time {
	return d.facts.Namespace.CreationTimestamp.Add(by + time.Second)
}

func orDefault(text v1alpha1.Duration, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	return text.Parse()
}
