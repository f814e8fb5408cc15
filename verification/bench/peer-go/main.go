// Command peer-go is the operator that Coppice is compared with in benchmarks: see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"coppice.dev/bench/peer-go/api/v1alpha1"
	"coppice.dev/bench/peer-go/internal/controller"
	"coppice.dev/bench/peer-go/internal/governor"
)

// The product's Lease: its RBAC suffices, and the two never act at the same time.
const leaseName = "coppice-operator"

type options struct {
	namespace          string
	stripManagedFields bool
	metricsAddress     string
	probeAddress       string
	leaderElect        bool
	leaseDuration      time.Duration
	renewDeadline      time.Duration
	retryPeriod        time.Duration
	concurrency        int
	maxPerMinute       int
	qps                float64
	burst              int
}

// flags declares the flags; --kubeconfig is declared by controller-runtime.
func (o *options) flags(f *flag.FlagSet) {
	f.StringVar(&o.namespace, "namespace", "coppice-system", "The operator's own namespace: its Lease is there, and it is protected.")
	f.BoolVar(&o.stripManagedFields, "strip-managed-fields", false, "Keep objects in the cache without managedFields.")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", "127.0.0.1:8080", "Where to serve /metrics; 0 for nowhere.")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", "127.0.0.1:8081", "Where to serve /healthz and /readyz; 0 for nowhere.")
	f.BoolVar(&o.leaderElect, "leader-elect", false, "Act only while holding the Lease.")
	f.DurationVar(&o.leaseDuration, "lease-duration", 15*time.Second, "How long a replica that does not answer keeps the Lease.")
	f.DurationVar(&o.renewDeadline, "renew-deadline", 10*time.Second, "How long the leader tries to renew before it gives up and exits.")
	f.DurationVar(&o.retryPeriod, "retry-period", 2*time.Second, "How often the Lease is renewed or asked for.")
	f.IntVar(&o.concurrency, "concurrency", 8, "How many managers are worked on at once.")
	f.IntVar(&o.maxPerMinute, "max-per-minute", 0, "At most so many namespaces are deleted a minute; 0 for no limit.")
	f.Float64Var(&o.qps, "kube-api-qps", -1, "At most so many requests a second; negative for no limit.")
	f.IntVar(&o.burst, "kube-api-burst", 0, "With --kube-api-qps, so many requests may come at once.")
}

func main() {
	var o options
	o.flags(flag.CommandLine)
	logging := zap.Options{}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))
	if err := run(ctrl.SetupSignalHandler(), o); err != nil {
		ctrl.Log.Error(err, "ended")
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(o.qps), o.burst
	config.UserAgent = "coppice-peer-go"

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))

	var cacheOptions cache.Options
	if o.stripManagedFields {
		cacheOptions.DefaultTransform = cache.TransformStripManagedFields()
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions,
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.probeAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.leaseDuration,
		RenewDeadline:                 &o.renewDeadline,
		RetryPeriod:                   &o.retryPeriod,
	})
	if err != nil {
		return fmt.Errorf("create manager: %w", err)
	}
	reconciler := &controller.Reconciler{
		Client:       mgr.GetClient(),
		Fresh:        mgr.GetAPIReader(),
		Events:       mgr.GetEventRecorder("coppice-peer-go"),
		Governor:     governor.New(o.maxPerMinute),
		OwnNamespace: o.namespace,
		Now:          time.Now,
	}
	if err := reconciler.SetupWithManager(mgr, o.concurrency); err != nil {
		return fmt.Errorf("create controller: %w", err)
	}
	synced, err := cachesSynced(ctx, mgr.GetCache())
	if err != nil {
		return fmt.Errorf("create informers: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("caches", synced); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// cachesSynced is ready when every kind that is watched has been listed.
func cachesSynced(ctx context.Context, c cache.Cache) (healthz.Checker, error) {
	var synced []toolscache.InformerSynced
	for _, kind := range []client.Object{&v1alpha1.NamespaceManager{}, &corev1.Namespace{}, &corev1.Pod{}, &batchv1.Job{}} {
		informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		synced = append(synced, informer.HasSynced)
	}
	return func(*http.Request) error {
		for _, hasSynced := range synced {
			if !hasSynced() {
				return errors.New("caches are not synced")
			}
		}
		return nil
	}, nil
}
