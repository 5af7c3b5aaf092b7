// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RoomKind is what is lent.
// +kubebuilder:validation:Enum=Store;Copy;Cache
type RoomKind string

// Kinds of room.
const (
	// room for objects, behind S3: sealed segments, which the guest's gateways write
	RoomStore RoomKind = "Store"
	// room for copies of the guest's volumes at the site's gateways, by the volumes' sizes
	RoomCopy RoomKind = "Copy"
	// room in the cache pools of the site's gateways that is kept for the guest's volumes, as far
	// as they reserve it
	RoomCache RoomKind = "Cache"
)

// RoomClass is how fast room is, as its host says.
// +kubebuilder:validation:Enum=Archive;Standard;Fast
type RoomClass string

// OrganizationName names an institution, as its certificates do.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:Pattern=`^[^/\n]+$`
type OrganizationName string

// StorageOfferSpec says what an organization lends. Of offers of others it is what the registry
// says.
// +kubebuilder:validation:XValidation:rule="quantity(string(self.amount)).isGreaterThan(quantity('0'))",message="amount must be more than 0: write how much is lent, such as 10Ti"
// +kubebuilder:validation:XValidation:rule="!has(self.least) || quantity(string(self.least)).compareTo(quantity(string(self.amount))) <= 0",message="least is more than amount, so nobody could ask: lower it, or raise amount"
// +kubebuilder:validation:XValidation:rule="!has(self.automatic) || quantity(string(self.automatic)).compareTo(quantity(string(self.amount))) <= 0",message="automatic is more than amount: lower it, or raise amount"
// +kubebuilder:validation:XValidation:rule="!has(self.until) || !has(self.from) || self.until > self.from",message="until is not after from: write a later time, or leave it out"
type StorageOfferSpec struct {
	// What is lent. Default Store. Immutable.
	// +optional
	// +kubebuilder:default=Store
	Kind RoomKind `json:"kind,omitempty"`
	// How much in all. Live: it shrinks no further than to what agreements took.
	Amount resource.Quantity `json:"amount"`
	// The smallest request; by default any. Live.
	// +optional
	Least *resource.Quantity `json:"least,omitempty"`
	// How much of it each organization gets without that a person accepts. By default nothing.
	// Live.
	// +optional
	Automatic *resource.Quantity `json:"automatic,omitempty"`
	// On what it is, such as HDD. Live.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Media string `json:"media,omitempty"`
	// How fast that is. Live.
	// +optional
	Class RoomClass `json:"class,omitempty"`
	// What it costs, in words. Agreements keep the words that they were made with. Live.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Price string `json:"price,omitempty"`
	// What else is agreed on, in words. Live, as price.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Terms string `json:"terms,omitempty"`
	// When agreements may begin; by default at once. Live.
	// +optional
	From *metav1.Time `json:"from,omitempty"`
	// When agreements have to end; by default at any time. Live.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// How long before its end an agreement is given notice of, such as 720h. Live, as price.
	// +optional
	// +kubebuilder:default="720h"
	Notice metav1.Duration `json:"notice,omitempty"`
	// How long after its end the guest can still read what it did not bring elsewhere. Live, as
	// price.
	// +optional
	// +kubebuilder:default="168h"
	Grace metav1.Duration `json:"grace,omitempty"`
	// The organizations that may ask; by default all of the federation. Live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	To []OrganizationName `json:"to,omitempty"`
	// Nobody may ask any more. Agreements go on. Live.
	// +optional
	Closed bool `json:"closed,omitempty"`
}

// StorageOfferStatus is what is known of an offer.
type StorageOfferStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The organization that lends.
	// +optional
	Host string `json:"host,omitempty"`
	// The offer's name there.
	// +optional
	Name string `json:"name,omitempty"`
	// The site where the room is.
	// +optional
	Site string `json:"site,omitempty"`
	// How much went to nobody yet.
	// +optional
	Free *resource.Quantity `json:"free,omitempty"`
	// How many agreements take from it.
	// +optional
	Agreements int32 `json:"agreements"`
	// Whether this cluster's organization may ask for it.
	// +optional
	ForUs bool `json:"forUs,omitempty"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// StorageOffer is room that an organization lends to others. Who makes one at a site offers room of
// that site. Offers of other sites are shown as SITE.NAME, and are read only. Deleting an offer
// ends no agreement.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=weir
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.host`
// +kubebuilder:printcolumn:name="Site",type=string,JSONPath=`.status.site`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Amount",type=string,JSONPath=`.spec.amount`
// +kubebuilder:printcolumn:name="Free",type=string,JSONPath=`.status.free`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Price",type=string,JSONPath=`.spec.price`,priority=1
// +kubebuilder:printcolumn:name="Terms",type=string,JSONPath=`.spec.terms`,priority=1
// +kubebuilder:printcolumn:name="Media",type=string,JSONPath=`.spec.media`,priority=1
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.class`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$')",message="an offer's name is a DNS label: at most 63 lower-case letters, digits and '-', without a dot"
type StorageOffer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// What is lent.
	Spec StorageOfferSpec `json:"spec"`
	// What is known of it.
	// +optional
	Status StorageOfferStatus `json:"status,omitzero"`
}

// StorageOfferList is a list of StorageOffer.
// +kubebuilder:object:root=true
type StorageOfferList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StorageOffer `json:"items"`
}

// StorageRequestSpec asks for room. What is asked for is signed, so that it never changes.
type StorageRequestSpec struct {
	// The StorageOffer that is asked for, by the name that it has in this cluster: SITE.NAME.
	// Immutable.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+\.[a-z0-9-]+$`
	Offer string `json:"offer"`
	// How much. Immutable.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="amount must be more than 0: write how much is wanted, such as 1Ti"
	Amount resource.Quantity `json:"amount"`
	// When the agreement ends if nobody gives notice. Immutable.
	Until metav1.Time `json:"until"`
	// Until when the host may answer; by default for 30 days. Immutable.
	// +optional
	AnswerBy *metav1.Time `json:"answerBy,omitempty"`
	// The price that was read in the offer. If the offer says something else by now, nothing is
	// asked for. By default what the offer says counts. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Price *string `json:"price,omitempty"`
	// What it is for, in words for the host. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Purpose string `json:"purpose,omitempty"`
}

// StorageRequestStatus is what became of a request.
type StorageRequestStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The StorageAgreement that shows it: the request's UID.
	// +optional
	Agreement string `json:"agreement,omitempty"`
	// The organization that was asked.
	// +optional
	Host string `json:"host,omitempty"`
	// The agreement's state.
	// +optional
	Phase AgreementPhase `json:"phase,omitempty"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// StorageRequest asks another organization for room that it offers. Deleting one that was not
// answered withdraws it. Deleting one that was accepted ends nothing: see StorageAgreement.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=weir
// +kubebuilder:printcolumn:name="Offer",type=string,JSONPath=`.spec.offer`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.host`
// +kubebuilder:printcolumn:name="Amount",type=string,JSONPath=`.spec.amount`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Agreement",type=string,JSONPath=`.status.agreement`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type StorageRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// What is asked for.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a request is signed and never changes: delete it, which withdraws it, and make another"
	Spec StorageRequestSpec `json:"spec"`
	// What became of it.
	// +optional
	Status StorageRequestStatus `json:"status,omitzero"`
}

// StorageRequestList is a list of StorageRequest.
// +kubebuilder:object:root=true
type StorageRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StorageRequest `json:"items"`
}
