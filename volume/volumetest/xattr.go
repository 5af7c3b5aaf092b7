// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"bytes"
	"slices"
	"strings"

	"github.com/weir-storage/weir/volume"
)

func testXattr(e *env) {
	get := func(e *env, h volume.Handle, name string) string {
		e.Helper()
		v, err := e.v.GetXattr(e.ctx, e.req(), h, name)
		e.ok(err)
		return string(v)
	}
	e.sub("modes", func(e *env, dir volume.Handle) {
		for _, h := range []volume.Handle{e.file(dir, "f", 0o644), e.mkdir(dir, "d", 0o755)} {
			set := func(name, value string, mode volume.XattrMode, want error) {
				e.Helper()
				before := e.attr(h)
				c, err := e.v.SetXattr(e.ctx, e.req(), h, name, []byte(value), mode)
				e.fails(err, want)
				after := e.attr(h)
				if want != nil && exact(after) != exact(before) {
					e.Error("a refused SetXattr changed attributes")
				}
				if want == nil && (c.Before != before.Change || c.After != after.Change || c.After <= c.Before) {
					e.Errorf("SetXattr returned %+v, change went from %d to %d", c, before.Change, after.Change)
				}
			}
			_, err := e.v.GetXattr(e.ctx, e.req(), h, "user.a")
			e.fails(err, volume.ErrNoXattr)
			set("user.a", "x", volume.XattrReplace, volume.ErrNoXattr)
			set("user.a", "1", volume.XattrCreate, nil)
			set("user.a", "2", volume.XattrCreate, volume.ErrExist)
			if got := get(e, h, "user.a"); got != "1" {
				e.Errorf("value is %q", got)
			}
			set("user.a", "22", volume.XattrReplace, nil)
			set("user.a", "333", volume.XattrEither, nil)
			set("user.b", "", volume.XattrEither, nil)
			set("user.A", "upper", volume.XattrEither, nil)
			if got := get(e, h, "user.a") + get(e, h, "user.b"); got != "333" {
				e.Errorf("values are %q", got)
			}
			list, err := e.v.ListXattr(e.ctx, e.req(), h)
			e.ok(err)
			if want := []string{"user.A", "user.a", "user.b"}; !slices.Equal(list, want) {
				e.Errorf("names are %q, want %q", list, want)
			}
			_, err = e.v.RemoveXattr(e.ctx, e.req(), h, "user.a")
			e.ok(err)
			_, err = e.v.RemoveXattr(e.ctx, e.req(), h, "user.a")
			e.fails(err, volume.ErrNoXattr)
			_, err = e.v.GetXattr(e.ctx, e.req(), h, "user.a")
			e.fails(err, volume.ErrNoXattr)
			list, err = e.v.ListXattr(e.ctx, e.req(), h)
			e.ok(err)
			if len(list) != 2 {
				e.Errorf("names are %q after a removal", list)
			}
		}
	})
	e.sub("limits", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		set := func(name string, value []byte, mode volume.XattrMode) error {
			_, err := e.v.SetXattr(e.ctx, e.req(), f, name, value, mode)
			return err
		}
		big := bytes.Repeat([]byte{7}, volume.MaxXattr+1)
		e.ok(set("user.big", big[:volume.MaxXattr], volume.XattrEither))
		e.fails(set("user.big", big, volume.XattrEither), volume.ErrXattrTooBig)
		if got := get(e, f, "user.big"); got != string(big[:volume.MaxXattr]) {
			e.Errorf("the largest value came back with %d bytes", len(got))
		}
		e.ok(set(strings.Repeat("n", volume.MaxName), nil, volume.XattrEither))
		e.ok(set("odd/\xff name", nil, volume.XattrEither))
		e.fails(set(strings.Repeat("n", volume.MaxName+1), nil, volume.XattrEither), volume.ErrNameTooLong)
		e.fails(set("", nil, volume.XattrEither), volume.ErrInvalid)
		e.fails(set("nul\x00", nil, volume.XattrEither), volume.ErrInvalid)
		e.fails(set("user.x", nil, volume.XattrReplace+1), volume.ErrInvalid)
	})
	e.sub("types", func(e *env, dir volume.Handle) {
		for _, args := range []volume.CreateArgs{linkArgs("x"), {Type: volume.FIFO, Mode: volume.Guarded}} {
			h := e.create(dir, string(rune('a'+args.Type)), args).Handle
			_, err := e.v.SetXattr(e.ctx, e.req(), h, "user.a", nil, volume.XattrEither)
			e.fails(err, volume.ErrPerm)
			_, err = e.v.GetXattr(e.ctx, e.req(), h, "user.a")
			e.fails(err, volume.ErrNoXattr)
			list, err := e.v.ListXattr(e.ctx, e.req(), h)
			e.ok(err)
			if len(list) != 0 {
				e.Errorf("names are %q", list)
			}
		}
		sticky := e.mkdir(dir, "sticky", 0o1777)
		_, err := e.v.SetXattr(e.ctx, volume.Request{Caller: alice}, sticky, "user.a", nil, volume.XattrEither)
		e.fails(err, volume.ErrPerm)
	})
	e.sub("memory", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		value := []byte("value")
		_, err := e.v.SetXattr(e.ctx, e.req(), f, "user.a", value, volume.XattrEither)
		e.ok(err)
		copy(value, "xxxxx")
		got, err := e.v.GetXattr(e.ctx, e.req(), f, "user.a")
		e.ok(err)
		copy(got, "yyyyy")
		if again := get(e, f, "user.a"); again != "value" {
			e.Errorf("value is %q after its callers changed their memory", again)
		}
	})
}
