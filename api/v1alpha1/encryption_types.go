// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Encryption says when a volume's data keys are replaced, and destroyed. What is written after
// another key followed is sealed with that. What is there keeps its key, and stays readable.
// +kubebuilder:validation:XValidation:rule="!has(self.rotateEvery) || duration(self.rotateEvery) == duration('0s') || (duration(self.rotateEvery) >= duration('1h') && duration(self.rotateEvery) <= duration('87840h'))",message="rotateEvery is not 0s, or from 1h to 87840h: write a time span, such as 2160h"
type Encryption struct {
	// How old the newest data key gets before another one follows, from 1h to 87840h. It is the
	// home's clock that counts. Default 0s: any age. Live.
	// +optional
	RotateEvery *metav1.Duration `json:"rotateEvery,omitempty"`
	// Raise it, and another data key follows at once. A value that is not greater than all before
	// does nothing. Default 0. Live.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Rotation *int64 `json:"rotation,omitempty"`
	// When the volume's data keys are destroyed, so that nobody reads what stores still have, also
	// with an old backup of the registry. OnPurge: they are sealed under a secret that only the
	// pools of the volume's gateways have, and which goes with the purge. When all these pools are
	// lost, so is the volume, whatever stores have. Default Never. NewDataOnly: what was written
	// before keeps its key.
	// +optional
	Erase Erase `json:"erase,omitempty"`
	// Whether what older data keys sealed is sealed anew under the newest, in the background.
	// OnRotation: it is, when another key followed. Not with blind copies, nor with lent stores.
	// Default Never. Live.
	// +optional
	Reseal Reseal `json:"reseal,omitempty"`
	// Lets a volume that is to be erased have only one copy that is not blind, and be lost with its
	// pool. Default false. Live.
	// +optional
	AcceptOneSite *bool `json:"acceptOneSite,omitempty"`
}

// Erase is when data keys are destroyed.
// +kubebuilder:validation:Enum=Never;OnPurge
type Erase string

// When data keys are destroyed.
const (
	EraseNever Erase = "Never"
	// when the volume is purged
	EraseOnPurge Erase = "OnPurge"
)

// Reseal is when what older data keys sealed is sealed anew.
// +kubebuilder:validation:Enum=Never;OnRotation
type Reseal string

// When what older data keys sealed is sealed anew.
const (
	ResealNever Reseal = "Never"
	// when another key followed
	ResealOnRotation Reseal = "OnRotation"
)

// VolumeKey is a volume's newest data key.
type VolumeKey struct {
	// Its number; the first is 0.
	Number int64 `json:"number"`
	// Since when the volume has it.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// The greatest encryption.rotation for which a data key followed.
	// +optional
	Rotation int64 `json:"rotation,omitempty"`
	// A purge of the volume destroys it, at each gateway that has it.
	// +optional
	Erasable bool `json:"erasable,omitempty"`
}
