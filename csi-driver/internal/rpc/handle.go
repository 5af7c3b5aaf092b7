// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// parseHandle splits a volume's handle, FEDERATION/UUID, as v1alpha1.VolumeHandle makes it. ok is
// false for any other text: it names no volume.
func parseHandle(handle string) (federation, id string, ok bool) {
	federation, id, ok = strings.Cut(handle, "/")
	if !ok || federation == "" {
		return "", "", false
	}
	if u, err := uuid.Parse(id); err != nil || u.String() != id {
		return "", "", false
	}
	return federation, id, true
}

// VolumeID returns the UUID in a handle. The error is NOT_FOUND when the handle names no volume of
// this federation.
func VolumeID(handle, federation string) (string, error) {
	of, id, ok := parseHandle(handle)
	if !ok {
		return "", status.Errorf(codes.NotFound, "volume %s is not there: a volume's handle is FEDERATION/UUID", handle)
	}
	if of != federation {
		return "", status.Errorf(codes.NotFound, "volume %s is of federation %s: this site is in %s", handle, of, federation)
	}
	return id, nil
}
