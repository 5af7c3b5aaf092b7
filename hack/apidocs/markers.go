// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// marker is a comment line such as +kubebuilder:validation:Minimum=1, or one with named arguments.
type marker struct {
	name, value string
	args        map[string]string
}

// Markers with named arguments, and the others that are known. Others are refused: they may mean
// something that the page should say.
var (
	withArguments = []string{"kubebuilder:printcolumn", "kubebuilder:resource", "kubebuilder:validation:XValidation"}
	known         = []string{
		"groupName", "kubebuilder:default", "kubebuilder:object:generate", "kubebuilder:object:root", "kubebuilder:subresource:status",
		"kubebuilder:validation:Enum", "kubebuilder:validation:Maximum", "kubebuilder:validation:MaxItems",
		"kubebuilder:validation:MaxLength", "kubebuilder:validation:MaxProperties", "kubebuilder:validation:MinProperties",
		"kubebuilder:validation:Minimum", "kubebuilder:validation:MinItems", "kubebuilder:validation:MinLength",
		"kubebuilder:validation:Pattern",
		"listMapKey", "listType", "optional",
	}
)

// parseMarker reads a line after its plus sign.
func parseMarker(line string) (marker, error) {
	for _, name := range withArguments {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			args, err := arguments(rest)
			if err != nil {
				return marker{}, fmt.Errorf("marker +%s: %w", line, err)
			}
			return marker{name: name, args: args}, nil
		}
	}
	name, value, _ := strings.Cut(line, "=")
	if !slices.Contains(known, name) {
		return marker{}, fmt.Errorf("marker +%s: it is not known: teach hack/apidocs what it means to people", line)
	}
	value, err := unquote(value)
	if err != nil {
		return marker{}, fmt.Errorf("marker +%s: %w", line, err)
	}
	return marker{name: name, value: value}, nil
}

// arguments reads name=value,name=value, where a value may be in quotes.
func arguments(s string) (map[string]string, error) {
	out := map[string]string{}
	for s != "" {
		name, rest, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("%q: write NAME=VALUE", s)
		}
		var value string
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			value, s = quoted, rest[len(quoted):]
			if s != "" && s[0] != ',' {
				return nil, fmt.Errorf("%q after %s: write a comma", s, quoted)
			}
			s = strings.TrimPrefix(s, ",")
		} else {
			value, s, _ = strings.Cut(rest, ",")
		}
		text, err := unquote(value)
		if err != nil {
			return nil, err
		}
		out[name] = text
	}
	return out, nil
}

func unquote(s string) (string, error) {
	if s == "" || s[0] != '"' && s[0] != '`' {
		return s, nil
	}
	text, err := strconv.Unquote(s)
	if err != nil {
		return "", fmt.Errorf("%s: its quotes are not closed", s)
	}
	return text, nil
}

// limits are what is allowed of a value. Numbers are kept as they are written; empty is no limit.
type limits struct {
	enum               []string
	min, max           string
	minLength          string
	maxLength          string
	minItems, maxItems string
	pattern            string
	// unique: no two items of a list are equal, or, with key, have an equal field of that name.
	unique bool
	key    string
}

// celRule is a rule that the API server checks, in the Common Expression Language.
type celRule struct{ rule, message string }

// validation reads the markers of a field or a type.
func validation(list []marker) (l limits, rules []celRule) {
	for _, m := range list {
		switch strings.TrimPrefix(m.name, "kubebuilder:validation:") {
		case "Enum":
			l.enum = strings.Split(m.value, ";")
		case "Minimum":
			l.min = m.value
		case "Maximum":
			l.max = m.value
		case "MinLength":
			l.minLength = m.value
		case "MaxLength":
			l.maxLength = m.value
		case "MinProperties": // a map's pairs are its items
			l.minItems = m.value
		case "MaxProperties":
			l.maxItems = m.value
		case "MinItems":
			l.minItems = m.value
		case "MaxItems":
			l.maxItems = m.value
		case "Pattern":
			l.pattern = m.value
		case "listType":
			l.unique = m.value == "set"
		case "listMapKey":
			l.key = m.value
		case "XValidation":
			rules = append(rules, celRule{m.args["rule"], m.args["message"]})
		}
	}
	return l, rules
}

func find(list []marker, name string) (marker, bool) {
	i := slices.IndexFunc(list, func(m marker) bool { return m.name == name })
	if i < 0 {
		return marker{}, false
	}
	return list[i], true
}
