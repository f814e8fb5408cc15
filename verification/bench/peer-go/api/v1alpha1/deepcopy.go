package v1alpha1

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject makes NamespaceManager a runtime.Object.
func (m *NamespaceManager) DeepCopyObject() runtime.Object { return m.DeepCopy() }

// DeepCopy returns a copy that shares nothing with the original.
func (m *NamespaceManager) DeepCopy() *NamespaceManager {
	if m == nil {
		return nil
	}
	out := &NamespaceManager{TypeMeta: m.TypeMeta, Spec: *m.Spec.DeepCopy(), Status: *m.Status.DeepCopy()}
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

// DeepCopyObject makes NamespaceManagerList a runtime.Object.
func (l *NamespaceManagerList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := &NamespaceManagerList{TypeMeta: l.TypeMeta, Items: cloneEach(l.Items, (*NamespaceManager).DeepCopy)}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	return out
}

// DeepCopy returns a copy that shares nothing with the original.
func (s *NamespaceManagerSpec) DeepCopy() *NamespaceManagerSpec {
	if s == nil {
		return nil
	}
	out := *s
	out.Policies = cloneEach(s.Policies, (*Policy).DeepCopy)
	out.Hold = clone(s.Hold)
	out.ExtendUntil = clone(s.ExtendUntil)
	out.Rearm = clone(s.Rearm)
	out.Wake = clone(s.Wake)
	return &out
}

// DeepCopy returns a copy that shares nothing with the original.
func (p *Policy) DeepCopy() *Policy {
	if p == nil {
		return nil
	}
	out := *p
	if ttl := p.When.TTL; ttl != nil {
		out.When.TTL = &TTL{After: clone(ttl.After), Until: clone(ttl.Until)}
	}
	if pods := clone(p.When.PodsSucceed); pods != nil {
		pods.Selector = pods.Selector.DeepCopy()
		pods.MinPods = clone(pods.MinPods)
		pods.IgnoreRetried = clone(pods.IgnoreRetried)
		out.When.PodsSucceed = pods
	}
	out.Then.Delete = clone(p.Then.Delete)
	if scale := p.Then.ScaleDown; scale != nil {
		out.Then.ScaleDown = &ScaleDown{Selectors: cloneEach(scale.Selectors, (*WorkloadSelector).DeepCopy)}
	}
	out.Then.Webhook = clone(p.Then.Webhook)
	return &out
}

// DeepCopy returns a copy that shares nothing with the original.
func (w *WorkloadSelector) DeepCopy() *WorkloadSelector {
	if w == nil {
		return nil
	}
	out := *w
	out.Selector = w.Selector.DeepCopy()
	return &out
}

// DeepCopy returns a copy that shares nothing with the original.
func (s *NamespaceManagerStatus) DeepCopy() *NamespaceManagerStatus {
	if s == nil {
		return nil
	}
	out := *s
	if out.Next = clone(s.Next); out.Next != nil {
		out.Next.Due = s.Next.Due.DeepCopy()
	}
	out.Policies = cloneEach(s.Policies, (*PolicyStatus).DeepCopy)
	out.Notice = clone(s.Notice)
	if out.LastFiring = clone(s.LastFiring); out.LastFiring != nil {
		out.LastFiring.Evidence = maps.Clone(s.LastFiring.Evidence)
	}
	out.Conditions = cloneEach(s.Conditions, (*metav1.Condition).DeepCopy)
	return &out
}

// DeepCopy returns a copy that shares nothing with the original.
func (s *PolicyStatus) DeepCopy() *PolicyStatus {
	if s == nil {
		return nil
	}
	out := *s
	out.Due = s.Due.DeepCopy()
	return &out
}

// clone copies a value that has no pointers of its own (or whose pointers the caller copies then).
func clone[T any](in *T) *T {
	if in == nil {
		return nil
	}
	out := *in
	return &out
}

func cloneEach[T any](in []T, deepCopy func(*T) *T) []T {
	out := slices.Clone(in)
	for i := range in {
		out[i] = *deepCopy(&in[i])
	}
	return out
}
