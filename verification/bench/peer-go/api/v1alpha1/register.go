package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of every type of this package.
var GroupVersion = schema.GroupVersion{Group: "coppice.dev", Version: "v1alpha1"}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NamespaceManager{}, &NamespaceManagerList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
