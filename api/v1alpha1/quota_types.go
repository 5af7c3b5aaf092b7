// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QuotaPer says what counts together.
// +kubebuilder:validation:Enum=Namespace;All
type QuotaPer string

// What counts together.
const (
	// each namespace may place the amount
	PerNamespace QuotaPer = "Namespace"
	// all namespaces together may place the amount
	PerAll QuotaPer = "All"
)

// RoomOwner says whose room it is.
// +kubebuilder:validation:Enum=Own;Others
type RoomOwner string

// Whose room it is.
const (
	// sites of this cluster's organization
	RoomOwn RoomOwner = "Own"
	// sites of other organizations, by an agreement or because they lend
	RoomOthers RoomOwner = "Others"
)

// NamespaceName is the name of a namespace of this cluster.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type NamespaceName string

// PlacementKind says what is placed.
// +kubebuilder:validation:Enum=Copy;Store
type PlacementKind string

// What is placed.
const (
	// a copy at a site's gateway
	PlacedCopy PlacementKind = "Copy"
	// the sealed segments in a lent store
	PlacedStore PlacementKind = "Store"
)

// AgreementName is the name of a StorageAgreement, which is its ID.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type AgreementName string

// PlacementQuotaSpec says how much volumes may place somewhere. A copy at a site counts with the
// volume's size, and so does a lent store that has the volume. Volumes that this cluster owns count
// until they are deleted; those in the trash do not, and neither do imports.
// +kubebuilder:validation:XValidation:rule="quantity(string(self.amount)).compareTo(quantity('0')) >= 0",message="amount must not be negative: write how much may be placed, such as 10Ti, or 0 for nothing"
type PlacementQuotaSpec struct {
	// Whose volumes count: those of all namespaces, if it is left out. Live.
	// +optional
	Namespaces QuotaNamespaces `json:"namespaces,omitzero"`
	// What counts together: with Namespace each namespace may place the amount, with All they may
	// do so together. Live.
	Per QuotaPer `json:"per"`
	// Where copies count: everywhere, if it is left out. Live.
	// +optional
	Where QuotaWhere `json:"where,omitzero"`
	// How much may be placed there; 0 is nothing. Live: what is placed stays, and when it is raised
	// volumes that wait are placed.
	Amount resource.Quantity `json:"amount"`
}

// QuotaNamespaces selects namespaces of this cluster, by all that is given. A volume is of the
// namespace of the GeoVolume or PersistentVolumeClaim that made it.
type QuotaNamespaces struct {
	// Those of these names. Live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Names []NamespaceName `json:"names,omitempty"`
	// Those with these labels. While it cannot be read, it selects all. Live.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// QuotaWhere selects sites and lent stores, by all that is given.
// +kubebuilder:validation:XValidation:rule="!has(self.whose) || self.whose != 'Own' || !has(self.agreements) && (!has(self.kind) || self.kind != 'Store')",message="room by agreement is that of others, so nothing would count: remove whose: Own, or remove agreements and kind: Store"
type QuotaWhere struct {
	// At these sites. Live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Sites []SiteName `json:"sites,omitempty"`
	// At sites with these labels. A site's organization and region are labels too, as in a policy's
	// replication.sites.selector. While it cannot be read, it selects all. Live.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// At sites of these organizations. Live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Organizations []OrganizationName `json:"organizations,omitempty"`
	// In room of these StorageAgreements, by their names. Live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Agreements []AgreementName `json:"agreements,omitempty"`
	// In room of this cluster's organization (Own), or of other ones (Others). Live.
	// +optional
	Whose RoomOwner `json:"whose,omitempty"`
	// Copies at gateways (Copy), or lent stores (Store). Live.
	// +optional
	Kind PlacementKind `json:"kind,omitempty"`
}

// PlacementQuotaStatus is what is used of a quota.
type PlacementQuotaStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// How much is used: of all namespaces together, or with per: Namespace of the one that uses
	// most.
	// +optional
	Used *resource.Quantity `json:"used,omitempty"`
	// How many copies and lent stores count.
	// +optional
	Copies int32 `json:"copies"`
	// How many namespaces use something of it.
	// +optional
	Using int32 `json:"using"`
	// How much namespaces use, of those 100 that use most.
	// +optional
	// +listType=map
	// +listMapKey=name
	Namespaces []NamespaceUse `json:"namespaces,omitempty"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceUse is what a namespace uses of a quota.
type NamespaceUse struct {
	// Its name.
	Name NamespaceName `json:"name"`
	// How much it uses.
	Used resource.Quantity `json:"used"`
}

// PlacementQuota limits how much the volumes of this cluster's namespaces may place where. A copy
// counts for each quota that is about it, and needs room in all of them. What is placed stays when
// a quota is lowered. Volumes that other clusters own do not count, also of the same organization.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pq,categories=weir
// +kubebuilder:printcolumn:name="Per",type=string,JSONPath=`.spec.per`
// +kubebuilder:printcolumn:name="Amount",type=string,JSONPath=`.spec.amount`
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.using`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Copies",type=integer,JSONPath=`.status.copies`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type PlacementQuota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Who may place how much where.
	Spec PlacementQuotaSpec `json:"spec"`
	// What is used of it.
	// +optional
	Status PlacementQuotaStatus `json:"status,omitzero"`
}

// PlacementQuotaList is a list of PlacementQuota.
// +kubebuilder:object:root=true
type PlacementQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PlacementQuota `json:"items"`
}
