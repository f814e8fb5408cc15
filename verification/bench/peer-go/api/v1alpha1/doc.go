// Package v1alpha1 has the Go types of the API group coppice.dev, as far as the peer needs them: NamespaceManager.
//
// They are written by hand, so that nothing but the compiler is needed to build the peer. The CRD is that of the
// product, in deploy/crds.
package v1alpha1
