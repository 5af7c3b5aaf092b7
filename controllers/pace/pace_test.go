// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"fmt"
	"testing"
)

// TestATurnIsPassedOn: a volume whose turn has come, and that does not need it any more, because it
// was deleted or has another policy now, does not keep the others waiting.
func TestATurnIsPassedOn(t *testing.T) {
	for _, leave := range []func(r *Rollout, uuid string){
		func(r *Rollout, uuid string) { r.End(uuid) },
		func(r *Rollout, uuid string) { r.Begin("other", uuid) },
	} {
		r := NewRollout(1)
		var turns []string
		r.OnTurn(func(uuid string) { turns = append(turns, uuid) })
		if !r.Begin("p", "first") {
			t.Fatal("the first may not begin")
		}
		for i := range 3 {
			if r.Begin("p", fmt.Sprint("waits", i)) {
				t.Fatal("two at a time")
			}
		}
		r.End("first")
		for i := range 3 {
			if len(turns) != i+1 {
				t.Fatalf("turns are %v after %d left", turns, i)
			}
			leave(r, turns[i])
		}
		if len(turns) != 3 {
			t.Errorf("turns are %v", turns)
		}
		if !r.Begin("p", "last") {
			t.Error("nobody takes it up, and one more may not")
		}
	}
}

// TestOneThatWaitsMayLeave: a volume that is deleted while it waits is not called.
func TestOneThatWaitsMayLeave(t *testing.T) {
	r := NewRollout(1)
	r.OnTurn(func(uuid string) { t.Errorf("%s is called", uuid) })
	r.Begin("p", "a")
	r.Begin("p", "b")
	r.End("b")
	r.End("a")
}

// TestAnotherPolicyFreesASlot: a volume that gets another policy while it takes one up makes room
// for the next that waits, and waits for nothing else.
func TestAnotherPolicyFreesASlot(t *testing.T) {
	r := NewRollout(1)
	var turns []string
	r.OnTurn(func(uuid string) { turns = append(turns, uuid) })
	r.Begin("p", "a")
	r.Begin("p", "b")
	r.Begin("p", "c")
	r.Begin("other", "c") // it waits no more
	if r.Begin("q", "a"); len(turns) != 1 || turns[0] != "b" {
		t.Errorf("turns are %v", turns)
	}
	if r.Begin("p", "b"); !r.Begin("p", "b") {
		t.Error("the one whose turn has come may not begin")
	}
	if r.End("b"); len(turns) != 1 {
		t.Errorf("turns are %v", turns)
	}
}
