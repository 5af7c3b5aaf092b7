// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SiteSpec says what a site is and where it is reached. The chart writes the local site's; of the
// others it is what the registry says.
type SiteSpec struct {
	// The institution: the unit of trust, quota and billing. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[^/\n]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a site does not change its organization: install it anew under another name"
	Organization string `json:"organization"`
	// A region, for policies that spread over regions. Sites without one are regions of their own.
	// Live: it counts when sites are chosen the next time.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// The federation that the site belongs to. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a site does not change its federation: its volumes are there; install it anew"
	Federation string `json:"federation"`
	// Where the site's parts are reached, for people and their tools. Gateways and operators go by
	// the registry. Live: it is shown, and nothing else.
	// +optional
	Endpoints SiteEndpoints `json:"endpoints,omitzero"`
}

// SiteEndpoints are where a site's parts are reached.
type SiteEndpoints struct {
	// host:port at which other sites' gateways reach this site's.
	// +optional
	Gateway string `json:"gateway,omitempty"`
	// The site's store, as a URL. Only this site's gateway has its keys.
	// +optional
	Store string `json:"store,omitempty"`
	// The members of the registry that this site uses, as URLs.
	// +optional
	// +listType=atomic
	Registry []string `json:"registry,omitempty"`
}

// SiteStatus is what is known of a site.
type SiteStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The UID of the namespace kube-system of the cluster that the site is: a second cluster of
	// this name is refused.
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// Whether this cluster is that site.
	// +optional
	Local bool `json:"local,omitempty"`
	// The site's gateways.
	// +optional
	// +listType=map
	// +listMapKey=name
	Gateways []SiteGateway `json:"gateways,omitempty"`
	// Gateways that are alive, and all: 1/1.
	// +optional
	Alive string `json:"alive,omitempty"`
	// How much the site gives to copies of volumes; empty: not limited.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// How much of it is promised to volumes, by their size.
	// +optional
	Promised *resource.Quantity `json:"promised,omitempty"`
	// Volumes that have a copy here.
	// +optional
	Volumes int32 `json:"volumes"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SiteGateway is a gateway of a site.
type SiteGateway struct {
	// Its name, unique in the federation.
	Name string `json:"name"`
	// host:port for other gateways.
	Address string `json:"address"`
	// Whether it has a heartbeat in the registry.
	Alive bool `json:"alive"`
}

// Site is a place of an organization: one Kubernetes cluster, with its gateways and perhaps a
// store. Labels of a site are what policies select by.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=weir
// +kubebuilder:printcolumn:name="Organization",type=string,JSONPath=`.spec.organization`
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.spec.region`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Gateways",type=string,JSONPath=`.status.alive`
// +kubebuilder:printcolumn:name="Volumes",type=integer,JSONPath=`.status.volumes`
// +kubebuilder:printcolumn:name="Local",type=boolean,JSONPath=`.status.local`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Promised",type=string,JSONPath=`.status.promised`,priority=1
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.status.capacity`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="a site's name is a DNS label: at most 63 lower-case letters, digits and '-'"
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// What the site is.
	Spec SiteSpec `json:"spec"`
	// What is known of it.
	// +optional
	Status SiteStatus `json:"status,omitzero"`
}

// SiteList is a list of Site.
// +kubebuilder:object:root=true
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Site `json:"items"`
}
