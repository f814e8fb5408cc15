package decide

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"coppice.dev/bench/peer-go/api/v1alpha1"
)

const (
	reasonInitialDelay    = "InitialDelay"
	reasonPodsSucceeded   = "PodsSucceeded"
	reasonSettling        = "Settling"
	reasonTooFewPods      = "TooFewPods"
	reasonPodsNotFinished = "PodsNotFinished"
	reasonPodFailed       = "PodFailed"
	reasonPodTerminating  = "PodTerminating"
	reasonPodStateUnknown = "PodStateUnknown"
	reasonJobNotComplete  = "JobNotComplete"
	reasonJobFailed       = "JobFailed"
	reasonJobNotSeen      = "JobNotSeen"
)

const (
	defaultInitialDelay = time.Minute
	defaultMinPods      = 1
)

func (d *draft) evaluatePods(condition *v1alpha1.PodsSucceed, previous *v1alpha1.PolicyStatus) (evaluation, error) {
	initialDelay, err := orDefault(condition.InitialDelay, defaultInitialDelay)
	if err != nil {
		return evaluation{}, fmt.Errorf("initialDelay: %w", err)
	}
	settle, err := orDefault(condition.Settle, 0)
	if err != nil {
		return evaluation{}, fmt.Errorf("settle: %w", err)
	}
	selector := labels.Everything()
	if condition.Selector != nil {
		if selector, err = metav1.LabelSelectorAsSelector(condition.Selector); err != nil {
			return evaluation{}, fmt.Errorf("selector: %w", err)
		}
		if selector.Empty() {
			return evaluation{}, fmt.Errorf("an empty selector is not accepted: leave the selector out to select all pods")
		}
	}

	if earliest := d.sinceCreation(initialDelay); d.now.Before(earliest) {
		return evaluation{
			result:  metav1.ConditionFalse,
			reason:  reasonInitialDelay,
			message: fmt.Sprintf("pods are looked at from %s on (initialDelay)", format(earliest)),
			lookAt:  earliest,
		}, nil
	}
	t := tally{
		selector:      selector,
		ignoreRetried: condition.IgnoreRetried == nil || *condition.IgnoreRetried,
		jobsByUID:     make(map[types.UID]*batchv1.Job, len(d.facts.Jobs)),
		seen:          map[types.UID]int64{},
	}
	t.count(d.facts.Pods, d.facts.Jobs)
	if b := t.blocker; b != nil {
		result := metav1.ConditionFalse
		if b.rank == rankUnknown {
			result = metav1.ConditionUnknown
		}
		return evaluation{result: result, reason: b.reason, message: b.message}, nil
	}
	minPods := int64(defaultMinPods)
	if condition.MinPods != nil {
		minPods = int64(*condition.MinPods)
	}
	if t.succeeded < minPods {
		return evaluation{
			result:  metav1.ConditionFalse,
			reason:  reasonTooFewPods,
			message: fmt.Sprintf("%d of at least %d pods have succeeded (minPods)", t.succeeded, minPods),
		}, nil
	}

	since := wholeSecond(d.now)
	if previous != nil && (previous.Reason == reasonSettling || previous.Reason == reasonPodsSucceeded) {
		since = previous.Since.Time
	}
	if settled := since.Add(settle); settle > 0 && d.now.Before(settled) {
		return evaluation{
			result:  metav1.ConditionFalse,
			reason:  reasonSettling,
			message: fmt.Sprintf("every pod has succeeded; must hold until %s (settle)", format(settled)),
			lookAt:  settled,
			since:   since,
		}, nil
	}
	return evaluation{
		result:   metav1.ConditionTrue,
		reason:   reasonPodsSucceeded,
		message:  "every pod that counts has succeeded",
		since:    since,
		evidence: t.evidence(),
	}, nil
}

// How serious a blocker is; of several the most serious is reported.
const (
	rankFailed = iota
	rankUnfinished
	rankLeaving
	rankUnknown
)

// blocker is why pods are no success.
type blocker struct {
	rank    int
	reason  string
	message string
}

// tally counts what has succeeded and finds what stands against it.
type tally struct {
	selector      labels.Selector
	ignoreRetried bool
	jobsByUID     map[types.UID]*batchv1.Job
	// Succeeded pods that are still there, by their Job.
	seen      map[types.UID]int64
	succeeded int64
	pods      []string
	jobs      []string
	blocker   *blocker
}

func (t *tally) count(pods []corev1.Pod, jobs []batchv1.Job) {
	for i := range jobs {
		t.jobsByUID[jobs[i].UID] = &jobs[i]
	}
	for i := range pods {
		pod := &pods[i]
		job := jobOf(pod)
		if job != "" && pod.Status.Phase == corev1.PodSucceeded && pod.DeletionTimestamp == nil {
			t.seen[job]++
		}
		if t.selector.Matches(labels.Set(pod.Labels)) {
			t.addPod(pod, job)
		}
	}
	for i := range jobs {
		if job := &jobs[i]; job.DeletionTimestamp == nil && t.selector.Matches(labels.Set(job.Spec.Template.Labels)) {
			t.addJob(job)
		}
	}
}

func (t *tally) addPod(pod *corev1.Pod, owner types.UID) {
	phase := pod.Status.Phase
	if pod.DeletionTimestamp != nil {
		// What is over and goes away says nothing any more; what was cut off may be replaced.
		if phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			t.block(rankLeaving, reasonPodTerminating, "pod %s is being deleted before it finished", pod.Name)
		}
		return
	}
	if owner != "" {
		job, ok := t.jobsByUID[owner]
		if !ok {
			t.block(rankUnknown, reasonJobNotSeen, "the Job that pod %s belongs to has not been seen", pod.Name)
			return
		}
		if !jobHas(job, batchv1.JobComplete) {
			t.blockOnJob(job)
			return
		}
	}
	switch phase {
	case corev1.PodSucceeded:
		t.succeeded++
		t.pods = append(t.pods, pod.Name)
	case corev1.PodFailed:
		// A pod of a Job that gets here belongs to one that is complete.
		if owner == "" || !t.ignoreRetried {
			t.block(rankFailed, reasonPodFailed, "pod %s has failed", pod.Name)
		}
	case "", corev1.PodPending:
		t.block(rankUnfinished, reasonPodsNotFinished, "pod %s is Pending", pod.Name)
	case corev1.PodRunning:
		t.block(rankUnfinished, reasonPodsNotFinished, "pod %s is Running", pod.Name)
	default:
		t.block(rankUnknown, reasonPodStateUnknown, "the state of pod %s is not known: its node does not answer", pod.Name)
	}
}

func (t *tally) addJob(job *batchv1.Job) {
	if !jobHas(job, batchv1.JobComplete) {
		t.blockOnJob(job)
		return
	}
	// Pods that have been cleaned away are remembered by their Job.
	t.succeeded += max(0, int64(job.Status.Succeeded)-t.seen[job.UID])
	t.jobs = append(t.jobs, job.Name)
}

func (t *tally) blockOnJob(job *batchv1.Job) {
	if jobHas(job, batchv1.JobFailed) {
		t.block(rankFailed, reasonJobFailed, "Job %s has failed", job.Name)
		return
	}
	t.block(rankUnfinished, reasonJobNotComplete, "Job %s is not complete", job.Name)
}

// block keeps the most serious blocker; of equal ones the first by its words, since the cache has no order and status
// is to change only when the cluster does.
func (t *tally) block(rank int, reason, message, name string) {
	b := blocker{rank: rank, reason: reason, message: fmt.Sprintf(message, name)}
	if t.blocker == nil || b.rank < t.blocker.rank || b.rank == t.blocker.rank && b.message < t.blocker.message {
		t.blocker = &b
	}
}

func (t *tally) evidence() map[string]string {
	evidence := map[string]string{"succeeded": strconv.FormatInt(t.succeeded, 10)}
	for key, names := range map[string][]string{"pods": t.pods, "jobs": t.jobs} {
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		if more := len(names) - 5; more > 0 {
			evidence[key] = fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), more)
		} else {
			evidence[key] = strings.Join(names, ", ")
		}
	}
	return evidence
}

// jobOf is the uid of the Job that controls a pod, if one does.
func jobOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "Job" {
		return owner.UID
	}
	return ""
}

func jobHas(job *batchv1.Job, condition batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}
