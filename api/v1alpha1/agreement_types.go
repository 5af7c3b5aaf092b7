// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AgreementPhase is the state of an agreement.
// +kubebuilder:validation:Enum=Requested;Declined;Expired;Agreed;Active;Ending;Breached;Drained;Ended
type AgreementPhase string

// AgreementParty is a side of an agreement.
// +kubebuilder:validation:Enum=Guest;Host
type AgreementParty string

// Parties.
const (
	// AgreementGuest borrows.
	AgreementGuest AgreementParty = "Guest"
	// AgreementHost lends.
	AgreementHost AgreementParty = "Host"
)

// Decision is what a host says to a request.
// +kubebuilder:validation:Enum=Accept;Decline
type Decision string

// Decisions.
const (
	DecisionAccept  Decision = "Accept"
	DecisionDecline Decision = "Decline"
)

// StorageAgreementSpec is what people of this cluster's organization decide. Each is said once, and
// signed by the operator: it is not taken back.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.decision) || has(self.decision)",message="decision was said, and is not taken back"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.notice) || has(self.notice)",message="notice was given, and is not taken back: make another agreement"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.unpaid) || has(self.unpaid)",message="unpaid was said, and is not taken back: make another agreement"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.hostGone) || has(self.hostGone)",message="hostGone was said, and is not taken back: make another agreement"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.drained) || has(self.drained)",message="drained was said, and is not taken back: the host may have deleted everything"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.delete) || has(self.delete)",message="delete was said, and is not taken back: it may be done already"
type StorageAgreementSpec struct {
	// What the host says to the request. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a decision is signed and never changes: give notice instead"
	Decision Decision `json:"decision,omitempty"`
	// Why the host declines, in words for the guest. Live: it counts until the host has declined.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Why string `json:"why,omitempty"`
	// Where the host's store is, as a URL, if it is not the site's own. Of kind Store only. Live.
	// +optional
	// +kubebuilder:validation:Pattern=`^https://.+`
	// +kubebuilder:validation:MaxLength=256
	Endpoint string `json:"endpoint,omitempty"`
	// Notice by this side: the agreement ends when the notice is over. Immutable.
	// +optional
	Notice *Statement `json:"notice,omitempty"`
	// The host says that it was not paid, which is notice too. Immutable.
	// +optional
	Unpaid *Statement `json:"unpaid,omitempty"`
	// The guest says that the host is gone: the agreement is over for it, and the host deletes
	// everything when it is back. Immutable.
	// +optional
	HostGone *Statement `json:"hostGone,omitempty"`
	// The guest says that it needs nothing there any more: the host deletes it. Immutable.
	// +optional
	Drained *Statement `json:"drained,omitempty"`
	// The host deletes what the guest did not bring elsewhere in time. What was drained is deleted
	// without it. Immutable.
	// +optional
	Delete *Statement `json:"delete,omitempty"`
	// How much of the agreement this cluster's gateways may fill, of a guest. By default the
	// operator gives them room in slices, at the site that asked for it. Of kind Store only. Live.
	// +optional
	// +listType=map
	// +listMapKey=gateway
	// +kubebuilder:validation:MaxItems=64
	Rooms []AgreementRoom `json:"rooms,omitempty"`
}

// Statement is something that is said once.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="what was said is signed and never changes"
type Statement struct {
	// Why, in words for the other side. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Why string `json:"why,omitempty"`
}

// AgreementRoom is how much of an agreement a gateway may fill.
type AgreementRoom struct {
	// The guest's gateway.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Gateway string `json:"gateway"`
	// How much of what it put there may be there at a time. 0 is enough to read.
	Amount resource.Quantity `json:"amount"`
}

// StorageAgreementStatus is what both sides said, and what follows.
type StorageAgreementStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Which side this cluster's organization is.
	// +optional
	Role AgreementParty `json:"role,omitempty"`
	// The organization that borrows.
	// +optional
	Guest string `json:"guest,omitempty"`
	// The organization that lends.
	// +optional
	Host string `json:"host,omitempty"`
	// The other one of the two.
	// +optional
	With string `json:"with,omitempty"`
	// The name of the host's offer.
	// +optional
	Offer string `json:"offer,omitempty"`
	// What is lent: Store, Copy or Cache.
	// +optional
	Kind string `json:"kind,omitempty"`
	// The site where the room is.
	// +optional
	Site string `json:"site,omitempty"`
	// How much was agreed on.
	// +optional
	Amount *resource.Quantity `json:"amount,omitempty"`
	// What it costs, in words.
	// +optional
	Price string `json:"price,omitempty"`
	// What else was agreed on, in words.
	// +optional
	Terms string `json:"terms,omitempty"`
	// What it is for, in words of the guest.
	// +optional
	Purpose string `json:"purpose,omitempty"`
	// When it ends if nobody gives notice.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// How long before its end it is given notice of.
	// +optional
	Notice metav1.Duration `json:"notice,omitempty"`
	// How long after its end the guest can still read.
	// +optional
	Grace metav1.Duration `json:"grace,omitempty"`
	// The state.
	// +optional
	Phase AgreementPhase `json:"phase,omitempty"`
	// Whose move it is; empty: nobody's.
	// +optional
	Move AgreementParty `json:"move,omitempty"`
	// When the guest can write no more.
	// +optional
	Ends *metav1.Time `json:"ends,omitempty"`
	// When the guest can read no more.
	// +optional
	GraceEnds *metav1.Time `json:"graceEnds,omitempty"`
	// Where the host's store is, as a URL. Of kind Store only.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// How much the guest's gateways may fill. Of kind Store only.
	// +optional
	// +listType=map
	// +listMapKey=gateway
	Rooms []AgreementRoom `json:"rooms,omitempty"`
	// What was said, in order.
	// +optional
	// +listType=atomic
	Said []AgreementStatement `json:"said,omitempty"`
	// Both sides' papers as they were signed: what each holds in its hand.
	// +optional
	// +listType=map
	// +listMapKey=name
	Papers []SignedPaper `json:"papers,omitempty"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AgreementStatement is something that a side said.
type AgreementStatement struct {
	// When, by the clock of who said it.
	At metav1.Time `json:"at"`
	// Which side.
	Side AgreementParty `json:"side"`
	// What, such as accepted.
	What string `json:"what"`
	// Why, in its words.
	// +optional
	Why string `json:"why,omitempty"`
	// Who: the URI of a certificate.
	// +optional
	By string `json:"by,omitempty"`
}

// SignedPaper is a record of the registry with its writer's signature.
type SignedPaper struct {
	// Its name in the registry.
	Name string `json:"name"`
	// The registry's revision of it.
	Revision int64 `json:"revision"`
	// The record, with its signature.
	Value string `json:"value"`
}

// StorageAgreement is an agreement of this cluster's organization with another. The operator makes
// it from what both sides signed; its name is the agreement's ID. People decide in its spec.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec) || has(self.spec)",message="spec has what was said and signed: keep it, and take out only what may go"
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=weir
// +kubebuilder:printcolumn:name="With",type=string,JSONPath=`.status.with`
// +kubebuilder:printcolumn:name="As",type=string,JSONPath=`.status.role`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.status.kind`
// +kubebuilder:printcolumn:name="Site",type=string,JSONPath=`.status.site`
// +kubebuilder:printcolumn:name="Amount",type=string,JSONPath=`.status.amount`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Move",type=string,JSONPath=`.status.move`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Ends",type=string,JSONPath=`.status.ends`
// +kubebuilder:printcolumn:name="Purpose",type=string,JSONPath=`.status.purpose`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type StorageAgreement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// What people of this cluster's organization decide.
	// +optional
	Spec StorageAgreementSpec `json:"spec,omitzero"`
	// What both sides said, and what follows.
	// +optional
	Status StorageAgreementStatus `json:"status,omitzero"`
}

// StorageAgreementList is a list of StorageAgreement.
// +kubebuilder:object:root=true
type StorageAgreementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StorageAgreement `json:"items"`
}

// StorageUsageSpec says what is counted.
type StorageUsageSpec struct {
	// The StorageAgreement of which is counted. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="what was counted is of one agreement: delete this object, which the operator makes anew"
	Agreement string `json:"agreement"`
}

// StorageUsageStatus is what both sides counted of an agreement.
type StorageUsageStatus struct {
	// The organization that borrows.
	// +optional
	Guest string `json:"guest,omitempty"`
	// The organization that lends.
	// +optional
	Host string `json:"host,omitempty"`
	// What is lent: Store, Copy or Cache.
	// +optional
	Kind string `json:"kind,omitempty"`
	// What the guest's gateways counted together, or its operators of copies and cache room.
	// +optional
	ByGuest *UsageCounters `json:"byGuest,omitempty"`
	// What the host's store counted, or its gateways of copies and cache room.
	// +optional
	ByHost *UsageCounters `json:"byHost,omitempty"`
	// By what both disagree; empty: by nothing that counts.
	// +optional
	Differs string `json:"differs,omitempty"`
	// Who counted more of that. It stays until counts show that this is over.
	// +optional
	// +kubebuilder:validation:Enum=Guest;Host
	More AgreementParty `json:"more,omitempty"`
	// How it was before: of each hour for two days, and of each day for three months.
	// +optional
	// +listType=atomic
	History []UsageSample `json:"history,omitempty"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// UsageCounters are what one side counted since the agreement began.
type UsageCounters struct {
	// Up to when.
	At metav1.Time `json:"at"`
	// Bytes that are there: stored ones of kind Store, the volumes' sizes of kind Copy, and what
	// volumes reserve of kind Cache.
	Stored int64 `json:"stored"`
	// Bytes times hours, in gibibyte-hours, as a decimal number.
	GibibyteHours string `json:"gibibyteHours"`
	// Bytes that were written. Of kind Store only, as what follows.
	Written int64 `json:"written"`
	// Bytes that were read.
	Read int64 `json:"read"`
	// Objects that were written.
	Writes int64 `json:"writes"`
	// Objects that were read.
	Reads int64 `json:"reads"`
	// Objects that were deleted.
	Deletions int64 `json:"deletions"`
}

// UsageSample is what was counted at a time.
type UsageSample struct {
	// When.
	At metav1.Time `json:"at"`
	// Bytes that were there, by the host's count, or the guest's if the host counted nothing yet.
	Stored int64 `json:"stored"`
	// Bytes times hours since the agreement began, in gibibyte-hours.
	GibibyteHours string `json:"gibibyteHours"`
}

// StorageUsage is what is used of an agreement, as both sides count it each hour. The operator
// makes it; its name is the agreement's.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=weir
// +kubebuilder:printcolumn:name="Guest",type=string,JSONPath=`.status.guest`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.host`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.status.kind`
// +kubebuilder:printcolumn:name="Stored",type=integer,JSONPath=`.status.byHost.stored`
// +kubebuilder:printcolumn:name="GiB-hours",type=string,JSONPath=`.status.byHost.gibibyteHours`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Differs",type=string,JSONPath=`.status.differs`,priority=1
// +kubebuilder:printcolumn:name="ByGuest",type=string,JSONPath=`.status.byGuest`,priority=1
// +kubebuilder:printcolumn:name="ByHost",type=string,JSONPath=`.status.byHost`,priority=1
type StorageUsage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// What is counted.
	Spec StorageUsageSpec `json:"spec"`
	// What both sides counted.
	// +optional
	Status StorageUsageStatus `json:"status,omitzero"`
}

// StorageUsageList is a list of StorageUsage.
// +kubebuilder:object:root=true
type StorageUsageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StorageUsage `json:"items"`
}
