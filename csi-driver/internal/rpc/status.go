// SPDX-License-Identifier: Apache-2.0

// Package rpc has what the controller's and the node's calls share: volume handles, checks of
// requests, the codes of errors, and the set of calls in flight.
package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// FromPort makes a status of an error of the registry, the gateway or the API server. It keeps the
// code of an error that is a status already. Any other error means that the port does not answer
// now. The format and its arguments say what was being done.
func FromPort(err error, format string, a ...any) error {
	code := codes.Unavailable
	switch s, ok := status.FromError(err); {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case ok && s.Code() != codes.OK && s.Code() != codes.Unknown:
		code = s.Code()
	}
	return status.Errorf(code, "%s: %v", fmt.Sprintf(format, a...), err)
}

// Invalid refuses the value of a field of a request.
func Invalid(field string, value any, remedy string) error {
	return status.Errorf(codes.InvalidArgument, "%s is %q: %s", field, fmt.Sprint(value), remedy)
}

// Missing refuses a request that lacks a field.
func Missing(field string) error {
	return status.Errorf(codes.InvalidArgument, "%s is missing: the request must have it", field)
}

// Topology is where the nodes of a site are. A site is one cluster, and all its nodes are alike.
func Topology(site string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{v1alpha1.TopologyKey: site}}
}
