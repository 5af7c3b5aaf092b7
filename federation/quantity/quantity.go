// SPDX-License-Identifier: Apache-2.0

// Package quantity reads and writes amounts of bytes and spans of time as people write them.
package quantity

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Bytes is an amount of bytes. It is written 500M, 10Gi, 1.5Ti or as a plain number: the part of
// Kubernetes' quantities that makes sense for bytes.
type Bytes int64

var byteUnits = []struct {
	suffix string
	factor int64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50}, {"Ei", 1 << 60},
	{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}, {"E", 1e18},
}

// ParseBytes reads a quantity; a negative one parses, so that the caller can say which field it is
// in.
func ParseBytes(s string) (Bytes, error) {
	num, factor := s, int64(1)
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			num, factor = n, u.factor
			break
		}
	}
	bad := fmt.Errorf("%q is not an amount of bytes: write a number with Ki, Mi, Gi, Ti, Pi, k, M, G, T, P or nothing behind it, such "+
		"as 10Gi", s)
	if num == "" || strings.Trim(num, "+-0123456789.") != "" || len(num) > 30 {
		return 0, bad
	}
	r, ok := new(big.Rat).SetString(num)
	if !ok {
		return 0, bad
	}
	r.Mul(r, new(big.Rat).SetInt64(factor))
	if !r.IsInt() {
		return 0, fmt.Errorf("%q is not a whole number of bytes: write it in a smaller unit", s)
	}
	if !r.Num().IsInt64() {
		return 0, fmt.Errorf("%q is more than the %d bytes that a volume can count: write less", s, int64(math.MaxInt64))
	}
	return Bytes(r.Num().Int64()), nil
}

// String is the shortest exact form, in binary units where they fit.
func (b Bytes) String() string {
	if b == 0 {
		return "0"
	}
	for _, units := range [][2]int{{5, 0}, {11, 6}} {
		for i := units[0]; i >= units[1]; i-- {
			if f := Bytes(byteUnits[i].factor); b%f == 0 && (units[0] == 5 || f >= 1e6) {
				return strconv.FormatInt(int64(b/f), 10) + byteUnits[i].suffix
			}
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalJSON writes String's form.
func (b Bytes) MarshalJSON() ([]byte, error) { return json.Marshal(b.String()) }

// UnmarshalJSON reads a string or a plain number.
func (b *Bytes) UnmarshalJSON(p []byte) error {
	var err error
	*b, err = ParseBytes(strings.Trim(string(p), `"`))
	return err
}

// Duration is a time span, written as Go and Kubernetes do: 30s, 5m, 1h30m.
type Duration time.Duration

// ParseDuration reads a span; a negative one parses, so that the caller can say which field it is
// in.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time span: write a number with ms, s, m or h behind it, such as 30s", s)
	}
	return Duration(d), nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes String's form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a string.
func (d *Duration) UnmarshalJSON(p []byte) error {
	var s string
	if err := json.Unmarshal(p, &s); err != nil {
		return fmt.Errorf("%s is not a time span: write a number with ms, s, m or h behind it, such as 30s", p)
	}
	var err error
	*d, err = ParseDuration(s)
	return err
}
