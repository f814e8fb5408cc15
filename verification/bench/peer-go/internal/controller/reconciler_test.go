package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"coppice.dev/bench/peer-go/api/v1alpha1"
	"coppice.dev/bench/peer-go/internal/governor"
)

var (
	created = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	key     = types.NamespacedName{Namespace: "ci", Name: "m"}
)

// fakeServer is an API server in memory, with the writes that it got.
type fakeServer struct {
	client.WithWatch
	statusWrites int
	deletions    []client.DeleteOptions
	refuse       error
}

func newFakeServer(t *testing.T, spec v1alpha1.NamespaceManagerSpec) *fakeServer {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: key.Namespace, UID: "the-uid", CreationTimestamp: metav1.NewTime(created), Finalizers: []string{"test/keep"},
	}}
	manager := &v1alpha1.NamespaceManager{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "manager", Generation: 1},
		Spec:       spec,
	}
	w := &fakeServer{}
	w.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(namespace, manager).
		WithStatusSubresource(manager).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				w.statusWrites++
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				var options client.DeleteOptions
				options.ApplyOptions(opts)
				w.deletions = append(w.deletions, options)
				if w.refuse != nil {
					return w.refuse
				}
				return c.Delete(ctx, o, opts...)
			},
		}).Build()
	return w
}

func (w *fakeServer) manager(t *testing.T) *v1alpha1.NamespaceManager {
	t.Helper()
	var manager v1alpha1.NamespaceManager
	if err := w.Get(t.Context(), key, &manager); err != nil {
		t.Fatal(err)
	}
	return &manager
}

// reconciler reads from cached what the cache would know, and fresh from the server.
func (w *fakeServer) reconciler(cached client.Client, now time.Time) (*Reconciler, *events.FakeRecorder) {
	recorder := events.NewFakeRecorder(100)
	return &Reconciler{
		Client:       cached,
		Fresh:        w,
		Events:       recorder,
		Governor:     governor.New(0),
		OwnNamespace: "coppice-system",
		Now:          func() time.Time { return now },
	}, recorder
}

func (w *fakeServer) reconcile(t *testing.T, now time.Time) (ctrl.Result, *events.FakeRecorder) {
	t.Helper()
	reconciler, recorder := w.reconciler(w, now)
	result, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil {
		t.Fatal(err)
	}
	return result, recorder
}

func ttl(after v1alpha1.Duration) v1alpha1.NamespaceManagerSpec {
	return v1alpha1.NamespaceManagerSpec{Policies: []v1alpha1.Policy{{
		Name: "a",
		When: v1alpha1.When{TTL: &v1alpha1.TTL{After: &after}},
		Then: v1alpha1.Then{Delete: &v1alpha1.Delete{}},
	}}}
}

func TestItComesBackWhenItIsDueAndWritesStatusOnce(t *testing.T) {
	w := newFakeServer(t, ttl("40s"))
	result, _ := w.reconcile(t, created.Add(11*time.Second))
	if result.RequeueAfter != 30*time.Second {
		t.Errorf("comes back after %s, want 30 s", result.RequeueAfter)
	}
	if _, recorder := w.reconcile(t, created.Add(12*time.Second)); len(recorder.Events) != 0 {
		t.Errorf("reported: %s", <-recorder.Events)
	}
	if w.statusWrites != 1 || len(w.deletions) != 0 {
		t.Errorf("%d status writes, %d deletions; want 1 and 0", w.statusWrites, len(w.deletions))
	}
}

func TestADeletionNamesUIDAndRevision(t *testing.T) {
	w := newFakeServer(t, ttl("40s"))
	var namespace corev1.Namespace
	if err := w.Get(t.Context(), types.NamespacedName{Name: key.Namespace}, &namespace); err != nil {
		t.Fatal(err)
	}
	_, recorder := w.reconcile(t, created.Add(time.Minute))
	if len(w.deletions) != 1 {
		t.Fatalf("%d deletions", len(w.deletions))
	}
	p := w.deletions[0].Preconditions
	if p == nil || p.UID == nil || *p.UID != "the-uid" || p.ResourceVersion == nil || *p.ResourceVersion != namespace.ResourceVersion {
		t.Errorf("preconditions %+v", p)
	}
	status := w.manager(t).Status
	if status.Phase != v1alpha1.PhaseTerminating || status.Firings != 1 || status.LastFiring == nil {
		t.Errorf("status %+v", status)
	}
	if len(recorder.Events) != 3 {
		t.Errorf("%d Events, want PolicyFired twice and NamespaceDeleted", len(recorder.Events))
	}
	// The namespace is still there, terminating: nothing more is done.
	if w.reconcile(t, created.Add(2*time.Minute)); len(w.deletions) != 1 {
		t.Errorf("%d deletions", len(w.deletions))
	}
}

func TestWhatTheCacheHasMissedPreventsADeletion(t *testing.T) {
	behind := newFakeServer(t, ttl("40s"))
	w := newFakeServer(t, ttl("40s"))
	manager := w.manager(t)
	manager.Spec.Suspend = true
	if err := w.Update(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	// Reads from a cache that is behind, writes to the API server.
	reconciler, _ := w.reconciler(splitClient{Client: w, reads: behind}, created.Add(time.Minute))
	if _, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if len(w.deletions) != 0 || w.manager(t).Status.Phase != v1alpha1.PhaseSuspended {
		t.Errorf("%d deletions, phase %s", len(w.deletions), w.manager(t).Status.Phase)
	}
}

func TestADeletionThatMeetsANewerRevisionIsDecidedAgain(t *testing.T) {
	w := newFakeServer(t, ttl("40s"))
	w.refuse = apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, key.Namespace, errors.New("changed"))
	reconciler, _ := w.reconciler(w, created.Add(time.Minute))
	if _, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !apierrors.IsConflict(err) {
		t.Fatalf("got %v, want the conflict, so that the queue tries again", err)
	}
	if w.manager(t).Status.Firings != 0 {
		t.Error("a firing is recorded")
	}
}

func TestAStatusThatMeetsANewerRevisionIsDecidedAgain(t *testing.T) {
	behind := newFakeServer(t, ttl("40s"))
	w := newFakeServer(t, ttl("40s"))
	if err := w.Update(t.Context(), w.manager(t)); err != nil {
		t.Fatal(err)
	}
	reconciler, _ := w.reconciler(splitClient{Client: w, reads: behind}, created)
	result, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter != conflictPause {
		t.Errorf("got %+v, %v; want to come back soon", result, err)
	}
}

func TestWithoutBudgetNothingIsDeleted(t *testing.T) {
	w := newFakeServer(t, ttl("40s"))
	now := created.Add(time.Minute)
	reconciler, _ := w.reconciler(w, now)
	reconciler.Governor = governor.New(1)
	reconciler.Governor.Reserve(now.Add(-20 * time.Second))
	result, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil || len(w.deletions) != 0 || result.RequeueAfter != 40*time.Second {
		t.Errorf("%v, %d deletions, comes back after %s", err, len(w.deletions), result.RequeueAfter)
	}
}

func TestAManagerThatIsGoneIsForgotten(t *testing.T) {
	w := newFakeServer(t, ttl("40s"))
	reconciler, _ := w.reconciler(w, created)
	gone := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ci", Name: "gone"}}
	if result, err := reconciler.Reconcile(t.Context(), gone); err != nil || !result.IsZero() {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestOnlyWhatDecisionsRestOnWakes(t *testing.T) {
	before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "1"}}
	after := before.DeepCopy()
	after.ResourceVersion = "2"
	after.Status.PodIP = "10.0.0.1"
	if podChanged(before, after) {
		t.Error("an address wakes")
	}
	after.Status.Phase = corev1.PodRunning
	if !podChanged(before, after) {
		t.Error("a phase does not wake")
	}
	labelled := before.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if !podChanged(before, labelled) {
		t.Error("a label does not wake")
	}
}

// splitClient reads from one place and writes to another, like the client of a manager.
type splitClient struct {
	client.Client
	reads client.Reader
}

func (s splitClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return s.reads.Get(ctx, key, o, opts...)
}

func (s splitClient) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return s.reads.List(ctx, l, opts...)
}
