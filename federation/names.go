// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"
	"regexp"
)

var (
	nameForm      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	subdomainForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	volumeForm    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$`)
	labelForm     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// CheckName checks what becomes part of a key: 1–128 letters, digits, '.', '_' and '-', never a
// slash.
func CheckName(kind, name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return invalid("check", kind, fmt.Sprintf("%q", name), "not a name: use 1 to 128 letters, digits, '.', '_' and '-'")
}

// CheckVolumeName checks a volume's name: a DNS label (RFC 1123, section 2.1), or two with a dot
// between them, as NAMESPACE.NAME.
func CheckVolumeName(name string) error {
	if volumeForm.MatchString(name) {
		return nil
	}
	return invalid("check", "volume", fmt.Sprintf("%q", name),
		"not a volume's name: use 1 to 63 lower-case letters, digits and '-', with a letter or digit first and last, or two such words "+
			"with a dot between them")
}

// checkSubdomain checks the name of a Kubernetes object: a DNS subdomain (RFC 1123, section 2.1).
func checkSubdomain(kind, name string) error {
	if subdomainForm.MatchString(name) {
		return nil
	}
	return invalid("check", kind, fmt.Sprintf("%q", name), "not a DNS subdomain: use at most 253 lower-case letters, digits, '-' and '.'")
}

// CheckLabel checks a DNS label (RFC 1123, section 2.1): what people choose for sites and gateways.
func CheckLabel(kind, name string) error {
	if labelForm.MatchString(name) {
		return nil
	}
	return invalid("check", kind, fmt.Sprintf("%q", name),
		"not a DNS label: use 1 to 63 lower-case letters, digits and '-', with a letter or digit first and last")
}
