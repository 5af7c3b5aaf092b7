// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type mode = csi.VolumeCapability_AccessMode_Mode

// singleNode lists the modes that allow one node.
var singleNode = []mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
}

// readers lists the modes that only read.
var readers = []mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
}

// multiNode lists those that allow several. Not MULTI_NODE_SINGLE_WRITER, which nobody would enforce.
var multiNode = []mode{
	csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

func modeOf(c *csi.VolumeCapability) mode { return c.GetAccessMode().GetMode() }

func onlyReads(c *csi.VolumeCapability) bool { return slices.Contains(readers, modeOf(c)) }

// checkCapability refuses what a volume cannot be used as. What is not supported are block devices, other file systems and
// mount options that would break promises.
func checkCapability(field string, c *csi.VolumeCapability) error {
	switch {
	case c == nil:
		return missing(field)
	case c.GetBlock() != nil:
		return status.Errorf(codes.InvalidArgument, "%s asks for a block device: a volume is a file system; write volumeMode: Filesystem", field)
	case c.GetMount() == nil:
		return status.Errorf(codes.InvalidArgument, "%s has no access type: it must have mount", field)
	case !slices.Contains(singleNode, modeOf(c)) && !slices.Contains(multiNode, modeOf(c)):
		return invalid(field+".access_mode", modeOf(c), "use SINGLE_NODE_..., MULTI_NODE_READER_ONLY or MULTI_NODE_MULTI_WRITER")
	}
	if t := c.GetMount().GetFsType(); t != "" && t != "nfs" && t != "nfs4" {
		return invalid(field+".fs_type", t, "a volume has its own file system; leave fsType out")
	}
	if g := c.GetMount().GetVolumeMountGroup(); g != "" && !digits.MatchString(g) {
		return invalid(field+".volume_mount_group", g, "it must be a group's number")
	}
	_, err := parseMountFlags(c.GetMount().GetMountFlags())
	return err
}

func checkCapabilities(cs []*csi.VolumeCapability) error {
	if len(cs) == 0 {
		return missing("volume_capabilities")
	}
	for _, c := range cs {
		if err := checkCapability("volume_capabilities", c); err != nil {
			return err
		}
	}
	return nil
}
