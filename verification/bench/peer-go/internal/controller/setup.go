package controller

import (
	"context"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"coppice.dev/bench/peer-go/api/v1alpha1"
)

// SetupWithManager registers the controller: what it watches, and what of that wakes it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrency int) error {
	ofNamespace := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.managersIn(ctx, o.GetName())
	})
	inNamespace := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.managersIn(ctx, o.GetNamespace())
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespacemanager").
		// Its own writes of status do not wake it.
		For(&v1alpha1.NamespaceManager{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Namespace{}, ofNamespace, builder.WithPredicates(onUpdate(namespaceChanged))).
		Watches(&corev1.Pod{}, inNamespace, builder.WithPredicates(onUpdate(podChanged))).
		Watches(&batchv1.Job{}, inNamespace, builder.WithPredicates(onUpdate(jobChanged))).
		WithOptions(ctrlcontroller.Options{
			MaxConcurrentReconciles: concurrency,
			// Replicas that do not lead keep warm caches.
			EnableWarmup: ptr.To(true),
		}).
		Complete(r)
}

func (r *Reconciler) managersIn(ctx context.Context, namespace string) []reconcile.Request {
	var managers v1alpha1.NamespaceManagerList
	if err := r.Client.List(ctx, &managers, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "managers are not woken", "namespace", namespace)
		return nil
	}
	requests := make([]reconcile.Request, len(managers.Items))
	for i := range managers.Items {
		requests[i].NamespacedName = types.NamespacedName{Namespace: namespace, Name: managers.Items[i].Name}
	}
	return requests
}

// onUpdate lets everything pass but updates that change nothing that decisions rest on.
func onUpdate[T client.Object](changed func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		if !ok {
			return true
		}
		after, ok := e.ObjectNew.(T)
		return !ok || changed(before, after)
	}}
}

func metaChanged(before, after client.Object) bool {
	return before.GetUID() != after.GetUID() ||
		before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
		!maps.Equal(before.GetLabels(), after.GetLabels())
}

func namespaceChanged(before, after *corev1.Namespace) bool {
	return metaChanged(before, after)
}

func podChanged(before, after *corev1.Pod) bool {
	return metaChanged(before, after) ||
		before.Status.Phase != after.Status.Phase ||
		!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
}

func jobChanged(before, after *batchv1.Job) bool {
	return metaChanged(before, after) ||
		before.Status.Succeeded != after.Status.Succeeded ||
		!equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions)
}
