// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation/encryption"
)

func encryptionOf(e v1alpha1.Encryption) encryption.Policy {
	out := encryption.Policy{RotateEvery: span(e.RotateEvery), Erase: encryption.Erase(e.Erase), Reseal: encryption.Reseal(e.Reseal),
		AcceptOneSite: e.AcceptOneSite != nil && *e.AcceptOneSite}
	if e.Rotation != nil {
		out.Rotation = *e.Rotation
	}
	return out
}

// describeEncryption is the inverse of encryptionOf.
func describeEncryption(p encryption.Policy) (out v1alpha1.Encryption) {
	if p.RotateEvery > 0 {
		out.RotateEvery = &metav1.Duration{Duration: time.Duration(p.RotateEvery)}
	}
	if p.Rotation > 0 {
		out.Rotation = ptr(p.Rotation)
	}
	out.Erase, out.Reseal = v1alpha1.Erase(p.Erase), v1alpha1.Reseal(p.Reseal)
	if p.AcceptOneSite {
		out.AcceptOneSite = ptr(true)
	}
	return out
}

// Key is what status shows of a volume's newest data key.
func Key(is encryption.Newest) *v1alpha1.VolumeKey {
	out := &v1alpha1.VolumeKey{Number: int64(is.Number), Rotation: is.Rotation, Erasable: is.Erasable}
	if !is.Since.IsZero() {
		out.Since = ptr(metav1.NewTime(is.Since.Truncate(time.Second)))
	}
	return out
}
