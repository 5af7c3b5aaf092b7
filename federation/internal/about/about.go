// SPDX-License-Identifier: Apache-2.0

// Package about says what records have to do with volumes and sites that they name.
package about

import (
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
)

// Keys that are no federation.Kind.
const (
	kindName       federation.Kind = "name"
	kindGateway    federation.Kind = "gateway"
	kindReconciled federation.Kind = "reconciled"
	kindCanary     federation.Kind = "canary"
)

func kindOf(key string) federation.Kind {
	kind, _, _ := strings.Cut(key, "/")
	return federation.Kind(kind)
}

// OfVolumes reports whether a key's record is about volumes. Such records are read from the archive
// while the registry is refused, and do not change while anybody refuses it.
func OfVolumes(key string) bool {
	switch kindOf(key) {
	case federation.KindControl, federation.KindVolume, kindName, federation.KindKeyring, federation.KindAdmission,
		federation.KindAttachment, federation.KindClaim, federation.KindLost, federation.KindPurged:
		return true
	}
	return false
}

// Archived reports whether an archive keeps a key's record.
func Archived(key string) bool {
	k := kindOf(key)
	return OfVolumes(key) || k == federation.KindSite || k == kindGateway || k == kindReconciled || k == kindCanary
}

// Volume is the volume that the record of a key is about; "": none. A loss is about a site.
func Volume(key string, value []byte) string {
	kind, name, _ := strings.Cut(key, "/")
	parts := strings.Split(name, "/")
	switch federation.Kind(kind) {
	case "name":
		return string(value)
	case federation.KindControl, federation.KindVolume, federation.KindKeyring, federation.KindClaim, federation.KindPurged:
		return parts[0]
	case federation.KindAdmission, federation.KindAttachment:
		if len(parts) > 1 {
			return parts[1]
		}
	}
	return ""
}

// Former are the sites that had copies of a volume, and are to have none any more.
func Former(old, next federation.Volume) (out []string) {
	for _, s := range slices.Concat(old.Former, old.Sites) {
		if !slices.Contains(next.Sites, s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Known returns what counts of records by what the registry has, and of volumes' records also by
// what gateways testify: who owns them now. follows returns why a value does not count after
// another.
func Known(has map[string][]byte, said []federation.Testimony,
	follows func(key string, value, known []byte) error) func(key string) []byte {
	newest := map[string][]byte{}
	for _, t := range said {
		is := newest[t.Key]
		if is == nil {
			is = has[t.Key]
		}
		if strings.HasPrefix(t.Key, string(federation.KindVolume)+"/") && !t.Deleted && is != nil && follows(t.Key, t.Value, is) == nil {
			newest[t.Key] = t.Value
		}
	}
	return func(key string) []byte {
		if v := newest[key]; v != nil {
			return v
		}
		return has[key]
	}
}
