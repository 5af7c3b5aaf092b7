// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// Claim is a GeoVolume and the volume that it claims.
type Claim struct {
	*v1alpha1.GeoVolume
	// UUID is the volume's.
	UUID string
	// Size is the volume's capacity in bytes; PVName does not need it.
	Size federation.Bytes
}

// PVName is the name of a claim's PersistentVolume: a volume has one for each claim.
func (c Claim) PVName() string {
	h := sha256.Sum256([]byte(c.Namespace + "/" + c.Name))
	return fmt.Sprintf("weir-%s-%s", c.UUID, hex.EncodeToString(h[:4]))
}

func (c Claim) modes() []corev1.PersistentVolumeAccessMode {
	if c.Spec.Access == v1alpha1.ReadOnly {
		return []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	}
	return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

func (c Claim) quantity() resource.Quantity { return *plan.Quantity(c.Size) }

// PV is the PersistentVolume. It can be bound to the claim only.
func (c Claim) PV(federation string) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: c.quantity()},
		AccessModes:                   c.modes(),
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		VolumeMode:                    &mode,
		ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace,
			Name: c.Name},
	}}
	pv.Name, pv.Labels = c.PVName(), map[string]string{v1alpha1.VolumeLabel: c.UUID}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: v1alpha1.Driver, VolumeHandle: v1alpha1.VolumeHandle(federation, c.UUID),
		ReadOnly: c.Spec.Access == v1alpha1.ReadOnly}
	return pv
}

// PVC is the PersistentVolumeClaim. The GeoVolume owns it.
func (c Claim) PVC() *corev1.PersistentVolumeClaim {
	class, mode, yes := "", corev1.PersistentVolumeFilesystem, true
	pvc := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes:      c.modes(),
		StorageClassName: &class,
		VolumeName:       c.PVName(),
		VolumeMode:       &mode,
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: c.quantity()}},
	}}
	pvc.Namespace, pvc.Name, pvc.Labels = c.Namespace, c.Name, map[string]string{v1alpha1.VolumeLabel: c.UUID}
	pvc.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GeoVolume", Name: c.Name, UID: c.UID,
		Controller: &yes, BlockOwnerDeletion: &yes}}
	return pvc
}
