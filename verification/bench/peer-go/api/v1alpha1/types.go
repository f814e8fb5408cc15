package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceManager says what is to happen to the namespace that it lives in, and when: the first policy whose
// condition is true fires, once.
type NamespaceManager struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NamespaceManagerSpec   `json:"spec"`
	Status NamespaceManagerStatus `json:"status,omitempty"`
}

// NamespaceManagerList is a list of managers.
type NamespaceManagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceManager `json:"items"`
}

// NamespaceManagerSpec is what the tenant wants.
type NamespaceManagerSpec struct {
	// While true nothing is done.
	Suspend bool `json:"suspend,omitempty"`
	// Policies in order: the first whose condition is true fires.
	Policies []Policy `json:"policies"`
	// No policy fires until the hold ends.
	Hold *Hold `json:"hold,omitempty"`
	// No ttl fires before this instant.
	ExtendUntil *Instant `json:"extendUntil,omitempty"`
	// Fire again after this firing. The peer does not look at it: a namespace is deleted once.
	Rearm *int64 `json:"rearm,omitempty"`
	// Undo the scale-down of this firing. The peer does not look at it: it scales nothing down.
	Wake *int64 `json:"wake,omitempty"`
}

// Policy is a condition and the action that it fires.
type Policy struct {
	// Unique in its manager.
	Name string `json:"name"`
	When When   `json:"when"`
	Then Then   `json:"then"`
}

// When is a condition: exactly one of its fields.
type When struct {
	TTL         *TTL         `json:"ttl,omitempty"`
	PodsSucceed *PodsSucceed `json:"podsSucceed,omitempty"`
}

// TTL is true when a time has passed: exactly one of its fields.
type TTL struct {
	// Since the namespace was created.
	After *Duration `json:"after,omitempty"`
	Until *Instant  `json:"until,omitempty"`
}

// PodsSucceed is true when every pod that counts has succeeded.
type PodsSucceed struct {
	// Which pods count; every pod of the namespace if it is left out.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Never true before the namespace is this old. The CRD's default is 60s.
	InitialDelay Duration `json:"initialDelay,omitempty"`
	// At least so many pods must have succeeded. The CRD's default is 1.
	MinPods *int32 `json:"minPods,omitempty"`
	// The condition must hold this long. The CRD's default is 0s.
	Settle Duration `json:"settle,omitempty"`
	// A failed pod of a Job that completed does not count. The CRD's default is true.
	IgnoreRetried *bool `json:"ignoreRetried,omitempty"`
}

// Then is an action: exactly one of its fields.
type Then struct {
	Delete    *Delete    `json:"delete,omitempty"`
	ScaleDown *ScaleDown `json:"scaleDown,omitempty"`
	Webhook   *Webhook   `json:"webhook,omitempty"`
}

// Delete deletes the namespace.
type Delete struct {
	// How long before the deletion it is announced. The CRD's default is 0s.
	Notice Duration `json:"notice,omitempty"`
}

// ScaleDown is known but not carried out by the peer.
type ScaleDown struct {
	Selectors []WorkloadSelector `json:"selectors,omitempty"`
}

// WorkloadSelector selects workloads of one kind.
type WorkloadSelector struct {
	APIVersion string                `json:"apiVersion,omitempty"`
	Kind       string                `json:"kind"`
	Selector   *metav1.LabelSelector `json:"selector,omitempty"`
}

// Webhook is known but not carried out by the peer.
type Webhook struct {
	URL    string `json:"url"`
	Format string `json:"format,omitempty"`
}

// Hold stops every policy until it ends.
type Hold struct {
	Until  Instant `json:"until"`
	Reason string  `json:"reason,omitempty"`
}

// NamespaceManagerStatus is what was observed, decided and done.
type NamespaceManagerStatus struct {
	// The generation of the spec that this status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	Phase              Phase `json:"phase,omitempty"`
	// How often this manager has fired.
	Firings int64 `json:"firings"`
	// What will be done next, or why nothing.
	Next *Next `json:"next,omitempty"`
	// A digest of the policies that Policies is about.
	PoliciesDigest string `json:"policiesDigest,omitempty"`
	// The verdict on each policy, in the order of spec.
	Policies []PolicyStatus `json:"policies,omitempty"`
	// A deletion that has been announced.
	Notice *Notice `json:"notice,omitempty"`
	// The last completed firing.
	LastFiring *Firing            `json:"lastFiring,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Phase is where a manager stands.
type Phase string

// The phases that the peer uses.
const (
	PhaseActive      Phase = "Active"
	PhasePending     Phase = "Pending"
	PhaseHeld        Phase = "Held"
	PhaseSuspended   Phase = "Suspended"
	PhaseRefused     Phase = "Refused"
	PhaseTerminating Phase = "Terminating"
)

// Next is what will be done next.
type Next struct {
	// Absent when nothing will be done.
	Action string `json:"action,omitempty"`
	Policy string `json:"policy,omitempty"`
	// When, if that depends on time alone.
	Due     *metav1.Time `json:"due,omitempty"`
	Reason  string       `json:"reason"`
	Message string       `json:"message"`
}

// PolicyStatus is the verdict on one policy.
type PolicyStatus struct {
	Name    string                 `json:"name"`
	Result  metav1.ConditionStatus `json:"result"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
	// Since when the result is what it is.
	Since metav1.Time `json:"since"`
	// When the policy is due, if that depends on time alone.
	Due *metav1.Time `json:"due,omitempty"`
}

// Notice is a deletion that has been announced. Its date may move later, never earlier.
type Notice struct {
	Policy    string      `json:"policy"`
	UID       string      `json:"uid"`
	GivenAt   metav1.Time `json:"givenAt"`
	NotBefore metav1.Time `json:"notBefore"`
}

// Firing is a completed firing.
type Firing struct {
	ID       string            `json:"id"`
	Policy   string            `json:"policy"`
	Action   string            `json:"action"`
	At       metav1.Time       `json:"at"`
	Reason   string            `json:"reason"`
	Digest   string            `json:"digest"`
	Result   string            `json:"result"`
	Message  string            `json:"message,omitempty"`
	Evidence map[string]string `json:"evidence,omitempty"`
}
