// Package controller is the peer's controller: it observes, asks [decide.Decide], and does what follows.
package controller

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"coppice.dev/bench/peer-go/api/v1alpha1"
	"coppice.dev/bench/peer-go/internal/decide"
	"coppice.dev/bench/peer-go/internal/governor"
)

// conflictPause is how long to wait before looking again after a write that met a newer revision.
const conflictPause = 100 * time.Millisecond

// Reconciler follows NamespaceManagers.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Fresh reads from the API server.
	Fresh    client.Reader
	Events   events.EventRecorder
	Governor *governor.Governor
	// OwnNamespace is the operator's own namespace, which is protected.
	OwnNamespace string
	// Now is the clock.
	Now func() time.Time
}

// Reconcile looks at one manager: it writes its status, or deletes its namespace.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	facts, err := r.observe(ctx, r.Client, request.NamespacedName)
	if err != nil {
		// Gone, or its namespace has not been seen: that will be an event of its own.
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if facts.Manager.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	decision := decide.Decide(facts, r.Now())
	if decision.Fires != nil {
		return r.fire(ctx, request.NamespacedName)
	}
	return r.settle(ctx, facts, decision)
}

// observe collects what decisions rest on: from the cache, or from the API server.
func (r *Reconciler) observe(ctx context.Context, reader client.Reader, key types.NamespacedName) (decide.Facts, error) {
	facts := decide.Facts{
		Manager:      &v1alpha1.NamespaceManager{},
		Namespace:    &corev1.Namespace{},
		OwnNamespace: r.OwnNamespace,
	}
	if err := reader.Get(ctx, key, facts.Manager); err != nil {
		return facts, err
	}
	if decide.NeedsPods(&facts.Manager.Spec) {
		var pods corev1.PodList
		if err := reader.List(ctx, &pods, client.InNamespace(key.Namespace)); err != nil {
			return facts, fmt.Errorf("list pods: %w", err)
		}
		var jobs batchv1.JobList
		if err := reader.List(ctx, &jobs, client.InNamespace(key.Namespace)); err != nil {
			return facts, fmt.Errorf("list jobs: %w", err)
		}
		facts.Pods, facts.Jobs = pods.Items, jobs.Items
	}
	// Last, so that the revision that a deletion is bound to is the newest of all.
	err := reader.Get(ctx, types.NamespacedName{Name: key.Namespace}, facts.Namespace)
	return facts, err
}

// fire decides again from fresh reads, since a deletion cannot be undone, and then deletes the very namespace that was
// read, in the revision that was read.
func (r *Reconciler) fire(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	facts, err := r.observe(ctx, r.Fresh, key)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if facts.Manager.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	decision := decide.Decide(facts, r.Now())
	if decision.Fires == nil {
		return r.settle(ctx, facts, decision)
	}
	if retryAt, ok := r.Governor.Reserve(r.Now()); !ok {
		decision.Wait(retryAt)
		return r.settle(ctx, facts, decision)
	}
	// Afterwards no Event can be created in the namespace any more.
	r.tell(facts, decision.Begun())
	r.tellOfNamespace(facts, decision.Begun())
	namespace := facts.Namespace
	err = r.Client.Delete(ctx, namespace,
		client.Preconditions{UID: &namespace.UID, ResourceVersion: &namespace.ResourceVersion},
		client.PropagationPolicy(metav1.DeletePropagationBackground),
	)
	if client.IgnoreNotFound(err) != nil {
		// A conflict is one of these: everything is decided again.
		return ctrl.Result{}, fmt.Errorf("delete namespace: %w", err)
	}
	id := decision.Fires.ID
	done := decision.Done(namespace.Name, r.Now())
	log.FromContext(ctx).Info("namespace deleted", "uid", namespace.UID, "firing", id, "why", done.Message)
	r.tellOfNamespace(facts, done)
	return r.settle(ctx, facts, decision)
}

// settle writes the status if it is new, tells what is new, and says when to look again.
func (r *Reconciler) settle(ctx context.Context, facts decide.Facts, decision decide.Decision) (ctrl.Result, error) {
	manager := facts.Manager
	if !equality.Semantic.DeepEqual(manager.Status, decision.Status) {
		manager.Status = decision.Status
		err := r.Client.Status().Update(ctx, manager)
		if apierrors.IsConflict(err) {
			// The cache is behind, for the most part behind our own write: decide again when it has caught up.
			return ctrl.Result{RequeueAfter: conflictPause}, nil
		}
		if err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	for _, note := range decision.Notes {
		r.tell(facts, note)
	}
	if decision.LookAt.IsZero() {
		return ctrl.Result{}, nil
	}
	// Never zero, which would mean not at all.
	return ctrl.Result{RequeueAfter: max(decision.LookAt.Sub(r.Now()), time.Millisecond)}, nil
}

// tell writes an Event about the manager.
func (r *Reconciler) tell(facts decide.Facts, note decide.Note) {
	r.Events.Eventf(facts.Manager, facts.Namespace, kindOf(note), note.Reason, "Manage", "%s", note.Message)
}

// tellOfNamespace writes an Event about the Namespace: it is kept in the namespace default, and outlives this one.
func (r *Reconciler) tellOfNamespace(facts decide.Facts, note decide.Note) {
	r.Events.Eventf(facts.Namespace, facts.Manager, kindOf(note), note.Reason, "Manage",
		"NamespaceManager %s: %s", facts.Manager.Name, note.Message)
}

func kindOf(note decide.Note) string {
	if note.Warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
