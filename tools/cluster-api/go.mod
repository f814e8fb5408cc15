module coppice.dev/tools/cluster-api

go 1.26.0

// No code of it is built: tests install its CustomResourceDefinitions.
require sigs.k8s.io/cluster-api v1.13.6
