// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// longestMessage is a little less than the API server accepts as a condition's message (32768).
const longestMessage = 30_000

// SetCondition sets one condition. If that changes its status, now is the time of its last change.
func SetCondition(list *[]metav1.Condition, generation int64, now time.Time, kind string, s State) {
	status := metav1.ConditionFalse
	if s.True {
		status = metav1.ConditionTrue
	}
	if len(s.Message) > longestMessage {
		s.Message = s.Message[:longestMessage] + " …"
	}
	meta.SetStatusCondition(list, metav1.Condition{Type: kind, Status: status, Reason: s.Reason, Message: s.Message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second))})
}

// SetReady sets Ready, and Reconciling and Stalled as kstatus defines them: they are present only
// while they are true, and never both. So a tool that waits for the object knows whether that
// helps.
func SetReady(list *[]metav1.Condition, generation int64, now time.Time, ready State, working, stalled bool) {
	SetCondition(list, generation, now, v1alpha1.ConditionReady, ready)
	for kind, is := range map[string]bool{v1alpha1.ConditionReconciling: working && !stalled, v1alpha1.ConditionStalled: stalled} {
		if is {
			SetCondition(list, generation, now, kind, State{true, ready.Reason, ready.Message})
		} else {
			meta.RemoveStatusCondition(list, kind)
		}
	}
}
