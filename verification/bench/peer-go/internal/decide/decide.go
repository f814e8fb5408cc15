// Package decide decides what becomes of a namespace: a pure function from what was observed, and the time, to a status
// and perhaps a deletion.
package decide

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coppice.dev/bench/peer-go/api/v1alpha1"
)

// LabelProtected is the label that, set to "true", protects a namespace.
const LabelProtected = "coppice.dev/protected"

const (
	conditionReady = "Ready"
	actionDelete   = "delete"
)

// The reasons that the peer gives, named as in the product. Those of pods are in pods.go.
const (
	reasonTTLRunning           = "TtlRunning"
	reasonTTLElapsed           = "TtlElapsed"
	reasonNoticeRunning        = "NoticeRunning"
	reasonInProgress           = "InProgress"
	reasonSuspended            = "Suspended"
	reasonHeld                 = "Held"
	reasonNamespaceTerminating = "NamespaceTerminating"
	reasonNamespaceProtected   = "NamespaceProtected"
	reasonActionNotAllowed     = "ActionNotAllowed"
	reasonInvalidSpec          = "InvalidSpec"
	reasonBudgetSpent          = "BudgetSpent"
	reasonDeletionAnnounced    = "DeletionAnnounced"
	reasonNoticeWithdrawn      = "NoticeWithdrawn"
	reasonPolicyFired          = "PolicyFired"
	reasonNamespaceDeleted     = "NamespaceDeleted"
)

// Facts are what was observed. Nothing of them is changed.
type Facts struct {
	Manager   *v1alpha1.NamespaceManager
	Namespace *corev1.Namespace
	// The namespace's; needed only if [NeedsPods].
	Pods []corev1.Pod
	Jobs []batchv1.Job
	// The operator's own namespace, which is protected.
	OwnNamespace string
}

// Note is something to tell people by an Event.
type Note struct {
	Warning bool
	Reason  string
	Message string
}

// Decision is what follows from facts.
type Decision struct {
	// The status that the manager should have.
	Status v1alpha1.NamespaceManagerStatus
	// What is new.
	Notes []Note
	// When time alone can change the decision; zero if it cannot.
	LookAt time.Time
	// Set if the namespace is to be deleted now: the firing, without its result.
	Fires *v1alpha1.Firing

	now     time.Time
	unknown *evaluation
}

// NeedsPods tells whether some policy depends on pods and Jobs.
func NeedsPods(spec *v1alpha1.NamespaceManagerSpec) bool {
	return slices.ContainsFunc(spec.Policies, func(p v1alpha1.Policy) bool { return p.When.PodsSucceed != nil })
}

// Decide decides.
func Decide(facts Facts, now time.Time) Decision {
	d := draft{facts: facts, spec: &facts.Manager.Spec, Decision: Decision{now: now}}
	d.Status = *facts.Manager.Status.DeepCopy()
	d.Status.ObservedGeneration = facts.Manager.Generation
	d.decide()
	return d.Decision
}

// draft is a decision in the making.
type draft struct {
	Decision
	facts  Facts
	spec   *v1alpha1.NamespaceManagerSpec
	digest string
}

func (d *draft) decide() {
	if d.facts.Namespace.DeletionTimestamp != nil {
		d.Status.Notice = nil
		d.finish(v1alpha1.PhaseTerminating, waits(reasonNamespaceTerminating, "the namespace is being deleted"))
		return
	}
	if why := d.protection(); why != "" {
		d.refuse(reasonNamespaceProtected, fmt.Sprintf("namespace %s is protected: %s", d.facts.Namespace.Name, why))
		return
	}
	evaluations, err := d.evaluate()
	if err != nil {
		d.refuse(reasonInvalidSpec, err.Error())
		return
	}
	if d.frozen() {
		return
	}
	for i, e := range evaluations {
		if e.result == metav1.ConditionTrue {
			d.fire(&d.spec.Policies[i], e)
			return
		}
	}
	d.watch(evaluations)
}

// protection says why the namespace must not be deleted, if so.
func (d *draft) protection() string {
	destroys := func(p v1alpha1.Policy) bool { return p.Then.Delete != nil || p.Then.ScaleDown != nil }
	namespace := d.facts.Namespace
	switch {
	case !slices.ContainsFunc(d.spec.Policies, destroys):
		return ""
	case namespace.Name == metav1.NamespaceDefault || strings.HasPrefix(namespace.Name, "kube-"):
		return "it belongs to Kubernetes"
	case namespace.Name == d.facts.OwnNamespace:
		return "it is the operator's own"
	case namespace.Labels[LabelProtected] == "true":
		return "it has the label " + LabelProtected + "=true"
	}
	return ""
}

// frozen finishes the decision if nothing may fire by the user's own spec.
func (d *draft) frozen() bool {
	if d.spec.Suspend {
		message := "spec.suspend is true: nothing is done until it is false"
		d.withdrawNotice(message)
		d.LookAt = time.Time{}
		d.finish(v1alpha1.PhaseSuspended, waits(reasonSuspended, message))
		return true
	}
	hold := d.spec.Hold
	if hold == nil {
		return false
	}
	until, err := hold.Until.Parse()
	if err != nil {
		d.refuse(reasonInvalidSpec, "hold.until: "+err.Error())
		return true
	}
	if !d.now.Before(until) {
		return false
	}
	message := "held until " + format(until)
	if hold.Reason != "" {
		message += " (" + hold.Reason + ")"
	}
	d.withdrawNotice(message)
	d.LookAt = until
	d.finish(v1alpha1.PhaseHeld, waits(reasonHeld, message))
	return true
}

// fire is about the first true policy: it runs its notice, or fires.
func (d *draft) fire(policy *v1alpha1.Policy, e evaluation) {
	if action := actionOf(policy); action != actionDelete {
		d.refuse(reasonActionNotAllowed, fmt.Sprintf("policy %q is true, but the peer does not carry out the action %s", policy.Name, action))
		return
	}
	// It was read by evaluate already.
	notice, _ := orDefault(policy.Then.Delete.Notice, 0)
	given := d.Status.Notice
	announced := given != nil && given.Policy == policy.Name && given.UID == string(d.facts.Namespace.UID)
	// A notice that was given runs its time, also if the policy asks for none any more.
	if announced || notice > 0 {
		notBefore := d.giveNotice(policy, notice, d.now)
		if d.now.Before(notBefore) {
			d.lookNoLaterThan(notBefore)
			next := step(policy.Name, reasonNoticeRunning, fmt.Sprintf("%s; notice runs until %s", e.message, format(notBefore)))
			next.Due = instant(notBefore)
			d.finish(v1alpha1.PhasePending, next)
			return
		}
	} else {
		d.withdrawNotice(fmt.Sprintf("policy %q fires first", policy.Name))
	}
	d.Fires = &v1alpha1.Firing{
		ID:       d.firingID(policy.Name),
		Policy:   policy.Name,
		Action:   actionDelete,
		Reason:   e.reason,
		Digest:   d.digest,
		Evidence: e.evidence,
	}
	d.finish(v1alpha1.PhasePending, step(policy.Name, reasonInProgress, e.message+": delete follows"))
}

// watch is about managers without a true policy: a ttl may have to be announced ahead of its end.
func (d *draft) watch(evaluations []evaluation) {
	var nearest *v1alpha1.Policy
	var nearestNotice time.Duration
	var nearestDue time.Time
	for i, e := range evaluations {
		policy := &d.spec.Policies[i]
		if policy.Then.Delete == nil || e.due.IsZero() {
			continue
		}
		notice, _ := orDefault(policy.Then.Delete.Notice, 0)
		if notice == 0 {
			continue
		}
		if from := e.due.Add(-notice); d.now.Before(from) {
			d.lookNoLaterThan(from)
		} else if nearest == nil || e.due.Before(nearestDue) {
			nearest, nearestNotice, nearestDue = policy, notice, e.due
		}
	}
	if nearest != nil {
		notBefore := d.giveNotice(nearest, nearestNotice, nearestDue)
		d.lookNoLaterThan(notBefore)
		next := step(nearest.Name, reasonNoticeRunning, "the ttl ends and notice runs until "+format(notBefore))
		next.Due = instant(notBefore)
		d.finish(v1alpha1.PhasePending, next)
		return
	}
	d.withdrawNotice("its policy is not due any more")
	d.finish(v1alpha1.PhaseActive, d.next(evaluations))
}

// next is what a manager that watches will do: the policy with the nearest date, else the first.
func (d *draft) next(evaluations []evaluation) v1alpha1.Next {
	chosen := 0
	messages := make([]string, len(evaluations))
	for i, e := range evaluations {
		messages[i] = actionOf(&d.spec.Policies[i]) + ": " + e.message
		best := evaluations[chosen].due
		if !e.due.IsZero() && (best.IsZero() || e.due.Before(best)) {
			chosen = i
		}
	}
	policy, e := &d.spec.Policies[chosen], evaluations[chosen]
	next := v1alpha1.Next{Action: actionOf(policy), Policy: policy.Name, Due: instant(e.due), Reason: e.reason, Message: e.message}
	if len(messages) > 1 {
		next.Message = strings.Join(messages, "; ")
	}
	return next
}

// giveNotice announces a deletion, or keeps what was announced, and returns the instant before which nothing is
// deleted. That instant may move later, never earlier.
func (d *draft) giveNotice(policy *v1alpha1.Policy, notice time.Duration, due time.Time) time.Time {
	uid := string(d.facts.Namespace.UID)
	if given := d.Status.Notice; given != nil && given.Policy == policy.Name && given.UID == uid {
		notBefore := latest(given.NotBefore.Time, given.GivenAt.Add(notice))
		if due.After(d.now) {
			notBefore = latest(notBefore, wholeSecond(due))
		}
		given.NotBefore = *instant(notBefore)
		return notBefore
	}
	d.withdrawNotice(fmt.Sprintf("policy %q announces another", policy.Name))
	givenAt := wholeSecond(d.now)
	notBefore := latest(givenAt.Add(notice), wholeSecond(due))
	d.note(true, reasonDeletionAnnounced, fmt.Sprintf(
		"namespace %s will be deleted at %s (policy %q); extend, hold or suspend to prevent it",
		d.facts.Namespace.Name, format(notBefore), policy.Name))
	d.Status.Notice = &v1alpha1.Notice{Policy: policy.Name, UID: uid, GivenAt: *instant(givenAt), NotBefore: *instant(notBefore)}
	return notBefore
}

func (d *draft) withdrawNotice(why string) {
	if given := d.Status.Notice; given != nil {
		d.Status.Notice = nil
		d.note(false, reasonNoticeWithdrawn, fmt.Sprintf("the deletion announced for %s (policy %q) will not happen then: %s",
			format(given.NotBefore.Time), given.Policy, why))
	}
}

func (d *draft) refuse(reason, message string) {
	d.withdrawNotice(message)
	d.LookAt = time.Time{}
	before := d.facts.Manager.Status
	if before.Phase != v1alpha1.PhaseRefused || before.Next == nil || before.Next.Message != message {
		d.note(true, reason, message)
	}
	d.finish(v1alpha1.PhaseRefused, waits(reason, message))
}

func (d *draft) note(warning bool, reason, message string) {
	d.Notes = append(d.Notes, Note{Warning: warning, Reason: reason, Message: message})
}

func (d *draft) lookNoLaterThan(at time.Time) {
	if d.LookAt.IsZero() || at.Before(d.LookAt) {
		d.LookAt = at
	}
}

func (d *draft) firingID(policy string) string {
	text := fmt.Sprintf("%s/%d/%s/%q/%s", d.facts.Manager.UID, d.Status.Firings+1, actionDelete, policy, d.digest)
	sum := sha256.Sum256([]byte(text))
	return "fire-" + hex.EncodeToString(sum[:10])
}

// finish writes phase, next step and the condition Ready.
func (d *Decision) finish(phase v1alpha1.Phase, next v1alpha1.Next) {
	d.Status.Phase = phase
	d.Status.Next = &next
	ready := metav1.Condition{
		Type:               conditionReady,
		Status:             metav1.ConditionTrue,
		Reason:             next.Reason,
		Message:            next.Message,
		ObservedGeneration: d.Status.ObservedGeneration,
		LastTransitionTime: metav1.NewTime(d.now.Truncate(time.Second).UTC()),
	}
	switch {
	case phase == v1alpha1.PhaseRefused:
		ready.Status = metav1.ConditionFalse
	case d.unknown != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionUnknown, d.unknown.reason, d.unknown.message
	}
	meta.SetStatusCondition(&d.Status.Conditions, ready)
}

// Wait turns the decision to fire into one to wait until an instant, since the budget of deletions is spent.
func (d *Decision) Wait(retryAt time.Time) {
	policy := d.Fires.Policy
	d.Fires = nil
	d.LookAt = retryAt
	next := step(policy, reasonBudgetSpent, "the budget of deletions a minute is spent")
	next.Due = instant(retryAt)
	d.finish(v1alpha1.PhasePending, next)
}

// Begun returns what to tell before the namespace is deleted.
func (d *Decision) Begun() Note {
	message := fmt.Sprintf("policy %q: %s (%s)", d.Fires.Policy, d.Status.Next.Message, d.Fires.ID)
	return Note{Reason: reasonPolicyFired, Message: message}
}

// Done turns the decision into what is true after the namespace was deleted, and returns what to tell.
func (d *Decision) Done(namespace string, now time.Time) Note {
	d.now = now
	firing := *d.Fires
	firing.At = *instant(wholeSecond(now))
	firing.Result = reasonNamespaceDeleted
	firing.Message = "namespace " + namespace + " is being deleted"
	d.Status.LastFiring = &firing
	d.Status.Firings++
	d.Status.Notice = nil
	d.finish(v1alpha1.PhaseTerminating, waits(reasonNamespaceTerminating, "the namespace is being deleted"))
	return Note{Reason: reasonNamespaceDeleted, Message: fmt.Sprintf("policy %q: %s (%s)", firing.Policy, firing.Message, firing.ID)}
}

func waits(reason, message string) v1alpha1.Next {
	return v1alpha1.Next{Reason: reason, Message: message}
}

func step(policy, reason, message string) v1alpha1.Next {
	return v1alpha1.Next{Action: actionDelete, Policy: policy, Reason: reason, Message: message}
}

func actionOf(policy *v1alpha1.Policy) string {
	switch {
	case policy.Then.Delete != nil:
		return actionDelete
	case policy.Then.ScaleDown != nil:
		return "scaleDown"
	case policy.Then.Webhook != nil:
		return "webhook"
	}
	return "none"
}

// digestOf is a short name for policies: what was recorded about other ones does not count.
func digestOf(policies []v1alpha1.Policy) (string, error) {
	text, err := json.Marshal(policies)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// instant is a time as status has it: whole seconds, none if it is zero.
func instant(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return &metav1.Time{Time: wholeSecond(at)}
}

// wholeSecond is the first whole second that is not before the time.
func wholeSecond(at time.Time) time.Time {
	if cut := at.Truncate(time.Second); cut.Before(at) {
		return cut.Add(time.Second).UTC()
	}
	return at.UTC()
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func format(at time.Time) string {
	return at.UTC().Format(time.RFC3339)
}
