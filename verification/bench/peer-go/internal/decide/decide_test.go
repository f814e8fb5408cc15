package decide

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"coppice.dev/bench/peer-go/api/v1alpha1"
)

var created = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// at is so long after the namespace was created, as far as its creation time tells.
func at(after time.Duration) time.Time { return created.Add(after) }

func ttl(after v1alpha1.Duration) v1alpha1.When {
	return v1alpha1.When{TTL: &v1alpha1.TTL{After: &after}}
}

func podsSucceed(condition v1alpha1.PodsSucceed) v1alpha1.When {
	return v1alpha1.When{PodsSucceed: &condition}
}

func deletes(name string, when v1alpha1.When, notice v1alpha1.Duration) v1alpha1.Policy {
	return v1alpha1.Policy{Name: name, When: when, Then: v1alpha1.Then{Delete: &v1alpha1.Delete{Notice: notice}}}
}

func scene(policies ...v1alpha1.Policy) Facts {
	return Facts{
		Manager: &v1alpha1.NamespaceManager{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "m", UID: "manager", Generation: 3},
			Spec:       v1alpha1.NamespaceManagerSpec{Policies: policies},
		},
		Namespace: &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "ci", UID: "namespace", CreationTimestamp: metav1.NewTime(created)},
		},
		OwnNamespace: "coppice-system",
	}
}

// follow decides and lets the manager have the status that was decided.
func follow(t *testing.T, facts Facts, now time.Time) Decision {
	t.Helper()
	before := facts.Manager.DeepCopy()
	decision := Decide(facts, now)
	if !equality.Semantic.DeepEqual(before, facts.Manager) {
		t.Fatal("deciding has changed the facts")
	}
	facts.Manager.Status = decision.Status
	return decision
}

func expect(t *testing.T, decision Decision, phase v1alpha1.Phase, reason string) {
	t.Helper()
	next := decision.Status.Next
	if decision.Status.Phase != phase || next.Reason != reason {
		t.Fatalf("got %s/%s (%s), want %s/%s", decision.Status.Phase, next.Reason, next.Message, phase, reason)
	}
}

func expectReady(t *testing.T, decision Decision, want metav1.ConditionStatus) {
	t.Helper()
	ready := meta.FindStatusCondition(decision.Status.Conditions, "Ready")
	if ready == nil || ready.Status != want {
		t.Fatalf("Ready is %+v, want %s", ready, want)
	}
}

func TestATTLFiresOneSecondLateAndNeverEarly(t *testing.T) {
	facts := scene(deletes("a", ttl("40s"), "0s"))
	due := at(41 * time.Second)
	decision := follow(t, facts, due.Add(-time.Nanosecond))
	expect(t, decision, v1alpha1.PhaseActive, "TtlRunning")
	expectReady(t, decision, metav1.ConditionTrue)
	if decision.Fires != nil || !decision.LookAt.Equal(due) || !decision.Status.Next.Due.Time.Equal(due) {
		t.Fatalf("fires %v, looks at %s, due %s; want %s", decision.Fires, decision.LookAt, decision.Status.Next.Due, due)
	}
	decision = follow(t, facts, due)
	expect(t, decision, v1alpha1.PhasePending, "InProgress")
	if f := decision.Fires; f == nil || f.Policy != "a" || f.Reason != "TtlElapsed" || f.Evidence["due"] != "2026-11-21T08:00:41Z" {
		t.Fatalf("fires %+v", f)
	}
}

func TestATTLMayEndAtAnInstantAndBeExtended(t *testing.T) {
	until := v1alpha1.Instant("2026-11-21T09:00:10+01:00")
	facts := scene(deletes("a", v1alpha1.When{TTL: &v1alpha1.TTL{Until: &until}}, ""))
	if Decide(facts, at(9*time.Second)).Fires != nil || Decide(facts, at(10*time.Second)).Fires == nil {
		t.Error("until is not kept")
	}
	facts.Manager.Spec.ExtendUntil = ptr.To(v1alpha1.Instant("2026-11-21T08:00:30Z"))
	if Decide(facts, at(29*time.Second)).Fires != nil || Decide(facts, at(30*time.Second)).Fires == nil {
		t.Error("extendUntil is not kept")
	}
}

func TestTheSameFactsGiveTheSameStatus(t *testing.T) {
	facts := scene(
		deletes("a", podsSucceed(v1alpha1.PodsSucceed{}), "0s"),
		deletes("b", ttl("2h"), "30m"),
	)
	for _, name := range []string{"c", "a", "b"} {
		facts.Pods = append(facts.Pods, pod(name, corev1.PodRunning))
	}
	first := follow(t, facts, at(2*time.Minute))
	facts.Pods[0], facts.Pods[1] = facts.Pods[1], facts.Pods[0]
	second := follow(t, facts, at(3*time.Minute+700*time.Millisecond))
	if !equality.Semantic.DeepEqual(first.Status, second.Status) {
		t.Errorf("the status has changed:\n%+v\n%+v", first.Status, second.Status)
	}
	if len(second.Notes) > 0 {
		t.Errorf("notes: %+v", second.Notes)
	}
	if first.Status.Next.Policy != "b" || !strings.Contains(first.Status.Next.Message, "pod a is Running") {
		t.Errorf("next: %+v", first.Status.Next)
	}
}

func TestTheFirstTruePolicyFires(t *testing.T) {
	facts := scene(
		deletes("pods", podsSucceed(v1alpha1.PodsSucceed{InitialDelay: "0s"}), ""),
		deletes("late", ttl("20s"), ""),
		deletes("early", ttl("10s"), ""),
	)
	if f := Decide(facts, at(15*time.Second)).Fires; f == nil || f.Policy != "early" {
		t.Errorf("at 15 s fires %+v", f)
	}
	if f := Decide(facts, at(25*time.Second)).Fires; f == nil || f.Policy != "late" {
		t.Errorf("at 25 s fires %+v", f)
	}
	facts.Pods = []corev1.Pod{pod("p", corev1.PodSucceeded)}
	if f := Decide(facts, at(25*time.Second)).Fires; f == nil || f.Policy != "pods" {
		t.Errorf("with a succeeded pod fires %+v", f)
	}
}

func TestNothingFiresWhileSuspendedHeldProtectedOrTerminating(t *testing.T) {
	due := at(time.Minute)
	for name, test := range map[string]struct {
		change func(*Facts)
		phase  v1alpha1.Phase
		reason string
	}{
		"suspended":   {func(f *Facts) { f.Manager.Spec.Suspend = true }, v1alpha1.PhaseSuspended, "Suspended"},
		"held":        {func(f *Facts) { f.Manager.Spec.Hold = &v1alpha1.Hold{Until: "2026-11-21T08:01:01Z"} }, v1alpha1.PhaseHeld, "Held"},
		"bad hold":    {func(f *Facts) { f.Manager.Spec.Hold = &v1alpha1.Hold{Until: "x"} }, v1alpha1.PhaseRefused, "InvalidSpec"},
		"default":     {func(f *Facts) { f.Namespace.Name = "default" }, v1alpha1.PhaseRefused, "NamespaceProtected"},
		"kube-system": {func(f *Facts) { f.Namespace.Name = "kube-system" }, v1alpha1.PhaseRefused, "NamespaceProtected"},
		"own":         {func(f *Facts) { f.Namespace.Name = "coppice-system" }, v1alpha1.PhaseRefused, "NamespaceProtected"},
		"label":       {func(f *Facts) { f.Namespace.Labels = map[string]string{LabelProtected: "true"} }, v1alpha1.PhaseRefused, "NamespaceProtected"},
		"terminating": {func(f *Facts) { f.Namespace.DeletionTimestamp = &metav1.Time{Time: due} }, v1alpha1.PhaseTerminating, "NamespaceTerminating"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := scene(deletes("a", ttl("10s"), "0s"))
			if Decide(facts, due).Fires == nil {
				t.Fatal("it would not fire anyway")
			}
			test.change(&facts)
			decision := follow(t, facts, due)
			expect(t, decision, test.phase, test.reason)
			if decision.Fires != nil {
				t.Error("it fires")
			}
			if test.phase == v1alpha1.PhaseRefused {
				expectReady(t, decision, metav1.ConditionFalse)
				if len(decision.Notes) != 1 || len(follow(t, facts, due.Add(time.Minute)).Notes) != 0 {
					t.Error("a refusal is to be reported once")
				}
			}
		})
	}
}

func TestAHoldEnds(t *testing.T) {
	facts := scene(deletes("a", ttl("10s"), ""))
	facts.Manager.Spec.Hold = &v1alpha1.Hold{Until: "2026-11-21T08:05:00Z", Reason: "demo"}
	decision := follow(t, facts, at(time.Minute))
	if !decision.LookAt.Equal(at(5*time.Minute)) || !strings.Contains(decision.Status.Next.Message, "(demo)") {
		t.Fatalf("looks at %s, %q", decision.LookAt, decision.Status.Next.Message)
	}
	if Decide(facts, at(5*time.Minute)).Fires == nil {
		t.Error("it does not fire when the hold has ended")
	}
}

func TestWhatCannotBeUnderstoodIsRefused(t *testing.T) {
	until := v1alpha1.Instant("2026-02-31T00:00:00Z")
	for name, policy := range map[string]v1alpha1.Policy{
		"after":        deletes("a", ttl("10"), ""),
		"zero":         deletes("a", ttl("0s"), ""),
		"until":        deletes("a", v1alpha1.When{TTL: &v1alpha1.TTL{Until: &until}}, ""),
		"both":         deletes("a", v1alpha1.When{TTL: &v1alpha1.TTL{Until: &until, After: ptr.To(v1alpha1.Duration("1s"))}}, ""),
		"neither":      deletes("a", v1alpha1.When{}, ""),
		"notice":       deletes("a", ttl("10s"), "x"),
		"initialDelay": deletes("a", podsSucceed(v1alpha1.PodsSucceed{InitialDelay: "x"}), ""),
		"settle":       deletes("a", podsSucceed(v1alpha1.PodsSucceed{Settle: "x"}), ""),
		"selector":     deletes("a", podsSucceed(v1alpha1.PodsSucceed{Selector: &metav1.LabelSelector{}}), ""),
	} {
		t.Run(name, func(t *testing.T) {
			decision := Decide(scene(policy), at(time.Hour))
			expect(t, decision, v1alpha1.PhaseRefused, "InvalidSpec")
			if !decision.LookAt.IsZero() {
				t.Error("it looks again")
			}
		})
	}
}

func TestActionsThatThePeerLacksAreRefusedWhenTheyAreDue(t *testing.T) {
	policy := v1alpha1.Policy{Name: "a", When: ttl("10s"), Then: v1alpha1.Then{ScaleDown: &v1alpha1.ScaleDown{}}}
	facts := scene(policy)
	expect(t, Decide(facts, at(time.Second)), v1alpha1.PhaseActive, "TtlRunning")
	decision := Decide(facts, at(time.Minute))
	expect(t, decision, v1alpha1.PhaseRefused, "ActionNotAllowed")
	if decision.Fires != nil {
		t.Error("it fires")
	}
}

func TestATTLIsAnnouncedAheadOfItsEnd(t *testing.T) {
	facts := scene(deletes("a", ttl("10m"), "2m"))
	due := at(10*time.Minute + time.Second)
	decision := follow(t, facts, at(time.Minute))
	if !decision.LookAt.Equal(due.Add(-2*time.Minute)) || decision.Status.Notice != nil {
		t.Fatalf("looks at %s, notice %+v", decision.LookAt, decision.Status.Notice)
	}
	decision = follow(t, facts, decision.LookAt)
	expect(t, decision, v1alpha1.PhasePending, "NoticeRunning")
	if len(decision.Notes) != 1 || decision.Notes[0].Reason != "DeletionAnnounced" || !decision.LookAt.Equal(due) {
		t.Fatalf("notes %+v, looks at %s", decision.Notes, decision.LookAt)
	}
	if decision := follow(t, facts, due.Add(-time.Second)); decision.Fires != nil || len(decision.Notes) != 0 {
		t.Fatalf("before its end: fires %+v, notes %+v", decision.Fires, decision.Notes)
	}
	if follow(t, facts, due).Fires == nil {
		t.Error("it does not fire at its end")
	}
}

func TestANoticeRunsInFullAlsoIfTheTTLHasEnded(t *testing.T) {
	facts := scene(deletes("a", ttl("10s"), "2m"))
	now := at(time.Hour + 300*time.Millisecond)
	notBefore := at(time.Hour + 2*time.Minute + time.Second)
	decision := follow(t, facts, now)
	expect(t, decision, v1alpha1.PhasePending, "NoticeRunning")
	if decision.Fires != nil || !decision.LookAt.Equal(notBefore) {
		t.Fatalf("fires %+v, looks at %s", decision.Fires, decision.LookAt)
	}
	// A policy that asks for no notice any more does not move the date.
	facts.Manager.Spec.Policies[0].Then.Delete.Notice = "0s"
	if follow(t, facts, notBefore.Add(-time.Nanosecond)).Fires != nil {
		t.Error("it fires before the date that was announced")
	}
	if follow(t, facts, notBefore).Fires == nil {
		t.Error("it does not fire at the date that was announced")
	}
}

func TestANoticeIsWithdrawnWhenItsPolicyIsNotDueAnyMore(t *testing.T) {
	facts := scene(deletes("a", ttl("10m"), "2m"))
	follow(t, facts, at(9*time.Minute))
	facts.Manager.Spec.ExtendUntil = ptr.To(v1alpha1.Instant("2026-11-21T09:00:00Z"))
	decision := follow(t, facts, at(9*time.Minute+time.Second))
	expect(t, decision, v1alpha1.PhaseActive, "TtlRunning")
	if decision.Status.Notice != nil || len(decision.Notes) != 1 || decision.Notes[0].Reason != "NoticeWithdrawn" {
		t.Errorf("notice %+v, notes %+v", decision.Status.Notice, decision.Notes)
	}
}

func TestANoticeAboutAnotherNamespaceOfThisNameDoesNotCount(t *testing.T) {
	facts := scene(deletes("a", ttl("10s"), "2m"))
	follow(t, facts, at(time.Hour))
	facts.Namespace.UID = "another"
	if follow(t, facts, at(2*time.Hour)).Fires != nil {
		t.Error("it fires by the notice of the one before")
	}
}

func TestAfterTheDeletionTheFiringIsRecorded(t *testing.T) {
	facts := scene(deletes("a", ttl("10s"), ""))
	decision := Decide(facts, at(time.Minute))
	id := decision.Fires.ID
	if again := Decide(facts, at(2*time.Minute)); again.Fires.ID != id {
		t.Error("the same firing has two ids")
	}
	note := decision.Done("ci", at(time.Minute+time.Millisecond))
	status := decision.Status
	expect(t, decision, v1alpha1.PhaseTerminating, "NamespaceTerminating")
	if status.Firings != 1 || status.LastFiring.ID != id || status.LastFiring.Result != "NamespaceDeleted" {
		t.Errorf("status %+v", status)
	}
	if note.Reason != "NamespaceDeleted" || !strings.Contains(note.Message, id) {
		t.Errorf("note %+v", note)
	}
}

func TestWithoutBudgetItWaits(t *testing.T) {
	decision := Decide(scene(deletes("a", ttl("10s"), "")), at(time.Minute))
	retryAt := at(90 * time.Second)
	decision.Wait(retryAt)
	expect(t, decision, v1alpha1.PhasePending, "BudgetSpent")
	if decision.Fires != nil || !decision.LookAt.Equal(retryAt) || !decision.Status.Next.Due.Time.Equal(retryAt) {
		t.Errorf("%+v", decision)
	}
}

func pod(name string, phase corev1.PodPhase) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "main"}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func leaving(p corev1.Pod) corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: created}
	return p
}

func of(p corev1.Pod, job types.UID) corev1.Pod {
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", UID: job, Controller: ptr.To(true)}}
	return p
}

func job(uid types.UID, succeeded int32, conditions ...batchv1.JobConditionType) batchv1.Job {
	j := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}}
	j.Spec.Template.Labels = map[string]string{"app": "main"}
	j.Status.Succeeded = succeeded
	for _, c := range conditions {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue})
	}
	return j
}

func TestHowPodsAndJobsCount(t *testing.T) {
	main := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "main"}}
	other := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	no, zero, two := ptr.To(false), ptr.To[int32](0), ptr.To[int32](2)
	succeeded, failed, running := corev1.PodSucceeded, corev1.PodFailed, corev1.PodRunning
	for name, test := range map[string]struct {
		condition v1alpha1.PodsSucceed
		pods      []corev1.Pod
		jobs      []batchv1.Job
		reason    string
		result    metav1.ConditionStatus
	}{
		"none":                {reason: "TooFewPods", result: "False"},
		"none, none needed":   {condition: v1alpha1.PodsSucceed{MinPods: zero}, reason: "PodsSucceeded", result: "True"},
		"succeeded":           {pods: []corev1.Pod{pod("a", succeeded)}, reason: "PodsSucceeded", result: "True"},
		"one of two":          {condition: v1alpha1.PodsSucceed{MinPods: two}, pods: []corev1.Pod{pod("a", succeeded)}, reason: "TooFewPods", result: "False"},
		"running":             {pods: []corev1.Pod{pod("a", succeeded), pod("b", running)}, reason: "PodsNotFinished", result: "False"},
		"no phase":            {pods: []corev1.Pod{pod("a", "")}, reason: "PodsNotFinished", result: "False"},
		"failed":              {pods: []corev1.Pod{pod("a", running), pod("b", failed)}, reason: "PodFailed", result: "False"},
		"unknown":             {pods: []corev1.Pod{pod("a", corev1.PodUnknown)}, reason: "PodStateUnknown", result: "Unknown"},
		"selected":            {condition: v1alpha1.PodsSucceed{Selector: main}, pods: []corev1.Pod{pod("a", running)}, reason: "PodsNotFinished", result: "False"},
		"not selected":        {condition: v1alpha1.PodsSucceed{Selector: other, MinPods: zero}, pods: []corev1.Pod{pod("a", running)}, jobs: []batchv1.Job{job("j", 0)}, reason: "PodsSucceeded", result: "True"},
		"leaving, over":       {pods: []corev1.Pod{leaving(pod("a", succeeded))}, reason: "TooFewPods", result: "False"},
		"leaving, cut off":    {pods: []corev1.Pod{pod("b", succeeded), leaving(pod("a", running))}, reason: "PodTerminating", result: "False"},
		"job unfinished":      {pods: []corev1.Pod{of(pod("a", succeeded), "j")}, jobs: []batchv1.Job{job("j", 1)}, reason: "JobNotComplete", result: "False"},
		"job alone":           {jobs: []batchv1.Job{job("j", 0)}, reason: "JobNotComplete", result: "False"},
		"job failed":          {jobs: []batchv1.Job{job("j", 0, batchv1.JobFailed)}, reason: "JobFailed", result: "False"},
		"job not seen":        {pods: []corev1.Pod{of(pod("a", succeeded), "j")}, reason: "JobNotSeen", result: "Unknown"},
		"job complete":        {pods: []corev1.Pod{of(pod("a", succeeded), "j")}, jobs: []batchv1.Job{job("j", 1, batchv1.JobComplete)}, reason: "PodsSucceeded", result: "True"},
		"not counted twice":   {condition: v1alpha1.PodsSucceed{MinPods: two}, pods: []corev1.Pod{of(pod("a", succeeded), "j")}, jobs: []batchv1.Job{job("j", 1, batchv1.JobComplete)}, reason: "TooFewPods", result: "False"},
		"pods cleaned away":   {condition: v1alpha1.PodsSucceed{MinPods: two}, jobs: []batchv1.Job{job("j", 2, batchv1.JobComplete)}, reason: "PodsSucceeded", result: "True"},
		"pod leaving, of job": {condition: v1alpha1.PodsSucceed{MinPods: two}, pods: []corev1.Pod{leaving(of(pod("a", succeeded), "j")), of(pod("b", succeeded), "j")}, jobs: []batchv1.Job{job("j", 2, batchv1.JobComplete)}, reason: "PodsSucceeded", result: "True"},
		"retried":             {pods: []corev1.Pod{of(pod("a", failed), "j"), of(pod("b", succeeded), "j")}, jobs: []batchv1.Job{job("j", 1, batchv1.JobComplete)}, reason: "PodsSucceeded", result: "True"},
		"retried counts":      {condition: v1alpha1.PodsSucceed{IgnoreRetried: no}, pods: []corev1.Pod{of(pod("a", failed), "j")}, jobs: []batchv1.Job{job("j", 1, batchv1.JobComplete)}, reason: "PodFailed", result: "False"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := scene(deletes("a", podsSucceed(test.condition), ""))
			facts.Pods, facts.Jobs = test.pods, test.jobs
			decision := Decide(facts, at(time.Hour))
			got := decision.Status.Policies[0]
			if got.Reason != test.reason || got.Result != test.result {
				t.Fatalf("got %s %s (%s), want %s %s", got.Result, got.Reason, got.Message, test.result, test.reason)
			}
			if (decision.Fires != nil) != (test.result == metav1.ConditionTrue) {
				t.Errorf("fires %+v", decision.Fires)
			}
			if test.result == metav1.ConditionUnknown {
				expectReady(t, decision, metav1.ConditionUnknown)
			}
		})
	}
}

func TestPodsAreLookedAtAfterTheInitialDelay(t *testing.T) {
	facts := scene(deletes("a", podsSucceed(v1alpha1.PodsSucceed{}), ""))
	facts.Pods = []corev1.Pod{pod("a", corev1.PodSucceeded)}
	from := at(61 * time.Second)
	decision := follow(t, facts, from.Add(-time.Nanosecond))
	expect(t, decision, v1alpha1.PhaseActive, "InitialDelay")
	if !decision.LookAt.Equal(from) || follow(t, facts, from).Fires == nil {
		t.Errorf("looks at %s, want to fire at %s", decision.LookAt, from)
	}
}

func TestPodsHaveToSettle(t *testing.T) {
	facts := scene(deletes("a", podsSucceed(v1alpha1.PodsSucceed{InitialDelay: "0s", Settle: "30s"}), ""))
	facts.Pods = []corev1.Pod{pod("a", corev1.PodSucceeded)}
	decision := follow(t, facts, at(10*time.Second+time.Millisecond))
	expect(t, decision, v1alpha1.PhaseActive, "Settling")
	if settled := at(41 * time.Second); !decision.LookAt.Equal(settled) {
		t.Fatalf("looks at %s, want %s", decision.LookAt, settled)
	}
	// A break starts the time again.
	facts.Pods[0].Status.Phase = corev1.PodRunning
	follow(t, facts, at(20*time.Second))
	facts.Pods[0].Status.Phase = corev1.PodSucceeded
	decision = follow(t, facts, at(25*time.Second))
	if settled := at(55 * time.Second); !decision.LookAt.Equal(settled) || follow(t, facts, settled.Add(-time.Nanosecond)).Fires != nil {
		t.Fatalf("looks at %s, want %s", decision.LookAt, settled)
	}
	if follow(t, facts, at(55*time.Second)).Fires == nil {
		t.Error("it does not fire when it has settled")
	}
}

func TestAnotherPolicyOfTheSameNameSettlesAnew(t *testing.T) {
	facts := scene(deletes("a", podsSucceed(v1alpha1.PodsSucceed{InitialDelay: "0s", Settle: "30s"}), ""))
	facts.Pods = []corev1.Pod{pod("a", corev1.PodSucceeded)}
	follow(t, facts, at(10*time.Second))
	facts.Manager.Spec.Policies[0].When.PodsSucceed.MinPods = ptr.To[int32](1)
	if follow(t, facts, at(40*time.Second)).Fires != nil {
		t.Error("it fires by what was seen under other policies")
	}
}
