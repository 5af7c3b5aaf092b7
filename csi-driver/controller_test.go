// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/controller"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

func (w *world) controller(t *testing.T) *controller.Server {
	t.Helper()
	c, err := controller.NewServer(controllerConfig(w))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What the external provisioner and the kubelet add to calls.
const (
	claimName      = "csi.storage.k8s.io/pvc/name"
	claimNamespace = "csi.storage.k8s.io/pvc/namespace"
	volumeName     = "csi.storage.k8s.io/pv/name"
	podNamespace   = "csi.storage.k8s.io/pod.namespace"
	ephemeral      = "csi.storage.k8s.io/ephemeral"
)

// volumeUUID is the UUID of the volume that CreateVolume makes under a name. It never changes.
func volumeUUID(name string) string {
	return uuid.NewSHA1(uuid.MustParse(testCluster), []byte(name)).String()
}

func createRequest(name string, parameters map[string]string) *csi.CreateVolumeRequest {
	p := map[string]string{claimName: "claim", claimNamespace: testNamespace, volumeName: name}
	maps.Copy(p, parameters)
	return &csi.CreateVolumeRequest{Name: name, Parameters: p, VolumeCapabilities: []*csi.VolumeCapability{capability(manyWriters)},
		CapacityRange: &csi.CapacityRange{RequiredBytes: 10 << 20}}
}

// create makes a volume and returns its handle.
func (w *world) create(t *testing.T, name string, parameters map[string]string) string {
	t.Helper()
	r, err := w.controller(t).CreateVolume(t.Context(), createRequest(name, parameters))
	if err != nil {
		t.Fatal(err)
	}
	return r.GetVolume().GetVolumeId()
}

func (w *world) content(t *testing.T, handle string) *v1alpha1.GeoVolumeContent {
	t.Helper()
	v := new(v1alpha1.GeoVolumeContent)
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: idOf(handle)}, v); err != nil {
		t.Fatal(err)
	}
	return v
}

// publish attaches a volume for a namespace, as the attacher does.
func (w *world) publish(t *testing.T, handle, node, namespace string, m csi.VolumeCapability_AccessMode_Mode, readOnly bool) {
	t.Helper()
	if err := w.tryPublish(t, handle, node, namespace, m, readOnly); err != nil {
		t.Fatal(err)
	}
}

func (w *world) tryPublish(t *testing.T, handle, node, namespace string, m csi.VolumeCapability_AccessMode_Mode, readOnly bool) error {
	t.Helper()
	if err := w.attach(t.Context(), handle, node, namespace, readOnly || m == manyReaders); err != nil {
		t.Fatal(err)
	}
	_, err := w.controller(t).ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: handle, NodeId: node, VolumeCapability: capability(m), Readonly: readOnly})
	return err
}

func TestCreate(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	handle := w.create(t, "pvc-1", map[string]string{"policy": "gold"})
	v := w.content(t, handle)
	s := v.Spec
	if s.FederationName != "pvc-1" || s.Owner != testSite || s.Policy != "gold" || s.Size.Value() != 10<<20 ||
		s.ReclaimPolicy != v1alpha1.Delete ||
		!slices.Equal(s.Claims, []v1alpha1.ClaimReference{{Kind: "PersistentVolumeClaim", Namespace: testNamespace, Name: "claim",
			Access: v1alpha1.ReadWrite}}) {
		t.Errorf("%+v", s)
	}
	if again := w.create(t, "pvc-1", map[string]string{"policy": "gold"}); again != handle {
		t.Errorf("another instance makes %s of what is %s", again, handle)
	}
	c := w.controller(t)
	for name, x := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		code   codes.Code
		says   []string
	}{
		"another size": {func(q *csi.CreateVolumeRequest) { q.CapacityRange.RequiredBytes++ }, codes.AlreadyExists,
			[]string{"pvc-1", "size", "10485760"}},
		"another policy": {func(q *csi.CreateVolumeRequest) { q.Parameters["policy"] = "silver" }, codes.AlreadyExists,
			[]string{"gold", "silver"}},
		"another claim": {func(q *csi.CreateVolumeRequest) { q.Parameters[claimName] = "x" }, codes.AlreadyExists, []string{"claims"}},
		"mutable wins": {func(q *csi.CreateVolumeRequest) {
			q.Parameters["policy"] = "x"
			q.MutableParameters = map[string]string{"policy": "gold"}
		}, codes.OK, nil},
		"no claim": {func(q *csi.CreateVolumeRequest) { delete(q.Parameters, claimName) }, codes.InvalidArgument,
			[]string{"--extra-create-metadata"}},
		"unknown parameter": {func(q *csi.CreateVolumeRequest) { q.Parameters["polcy"] = "gold" }, codes.InvalidArgument,
			[]string{"polcy", "gold", "policy: NAME"}},
		"unknown mutable": {func(q *csi.CreateVolumeRequest) { q.MutableParameters = map[string]string{"iops": "1"} },
			codes.InvalidArgument, []string{"iops"}},
		"of nothing": {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = &csi.VolumeContentSource{} },
			codes.InvalidArgument, []string{"volume_content_source", "dataSource"}},
		"of a volume now": {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = volumeSource(handle) },
			codes.AlreadyExists, []string{"content source nothing", "volume " + idOf(handle)}},
		"block": {func(q *csi.CreateVolumeRequest) {
			q.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		}, codes.InvalidArgument, []string{"block", "volumeMode: Filesystem"}},
		"file system": {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0].GetMount().FsType = "ext4" }, codes.InvalidArgument,
			[]string{"ext4", "fsType"}},
		"soft": {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0] = capability(manyWriters, "soft") },
			codes.InvalidArgument, []string{"soft", "hard"}},
		"mode": {func(q *csi.CreateVolumeRequest) {
			q.VolumeCapabilities[0] = capability(csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER)
		}, codes.InvalidArgument, []string{"MULTI_NODE_SINGLE_WRITER"}},
		"negative": {func(q *csi.CreateVolumeRequest) { q.CapacityRange.RequiredBytes = -1 }, codes.InvalidArgument,
			[]string{"required_bytes", "-1"}},
		"impossible": {func(q *csi.CreateVolumeRequest) { q.CapacityRange.LimitBytes = 1 }, codes.OutOfRange, []string{"10485760", " 1 "}},
		"elsewhere": {func(q *csi.CreateVolumeRequest) {
			q.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{rpc.Topology("there")}}
		}, codes.ResourceExhausted, []string{testSite}},
		"here": {func(q *csi.CreateVolumeRequest) {
			q.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{rpc.Topology("there"),
				rpc.Topology(testSite)}}
		}, codes.OK, nil},
	} {
		t.Run(name, func(t *testing.T) {
			q := createRequest("pvc-1", map[string]string{"policy": "gold"})
			x.change(q)
			_, err := c.CreateVolume(t.Context(), q)
			wantCode(t, err, x.code, x.says...)
		})
	}
	t.Run("sizes", func(t *testing.T) {
		for i, x := range []struct{ required, limit, size int64 }{{0, 0, 1 << 30}, {0, 5 << 20, 5 << 20}, {7, 0, 7}, {7, 9, 7}} {
			q := createRequest(fmt.Sprintf("pvc-size-%d", i), nil)
			q.CapacityRange = &csi.CapacityRange{RequiredBytes: x.required, LimitBytes: x.limit}
			r, err := c.CreateVolume(t.Context(), q)
			wantOK(t, err)
			if got := r.GetVolume().GetCapacityBytes(); got != x.size {
				t.Errorf("%+v: %d", x, got)
			}
		}
	})
}

// TestCreateFails: a creation that failed for good leaves nothing. One that may still succeed goes
// on.
func TestCreateFails(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	c := w.controller(t)
	for policy, code := range map[string]codes.Code{"too-wide": codes.ResourceExhausted, "no-such": codes.InvalidArgument} {
		_, err := c.CreateVolume(t.Context(), createRequest("pvc-"+policy, map[string]string{"policy": policy}))
		wantCode(t, err, code, "pvc-"+policy)
		waitFor(t, func() bool {
			err := w.client.Get(t.Context(), client.ObjectKey{Name: volumeUUID("pvc-" + policy)}, new(v1alpha1.GeoVolumeContent))
			return apierrors.IsNotFound(err)
		})
	}

	quiet := newWorld(t) // without an operator
	cfg := controllerConfig(quiet)
	cfg.WaitLimit = time.Millisecond
	slow, err := controller.NewServer(cfg)
	wantOK(t, err)
	_, err = slow.CreateVolume(t.Context(), createRequest("pvc-2", nil))
	wantCode(t, err, codes.DeadlineExceeded, "not ready yet", "nothing yet")
	v := quiet.content(t, v1alpha1.VolumeHandle(testFederation, volumeUUID("pvc-2")))
	quiet.say(t.Context(), v, metav1.ConditionFalse, v1alpha1.ReasonCreating, "2 of 3 sites have it")
	_, err = slow.CreateVolume(t.Context(), createRequest("pvc-2", nil))
	wantCode(t, err, codes.DeadlineExceeded, "2 of 3 sites have it")
	quiet.operate(t)
	quiet.reconcile(t.Context(), v.Name)
	quiet.say(t.Context(), quiet.content(t, v1alpha1.VolumeHandle(testFederation, v.Name)), metav1.ConditionTrue, v1alpha1.ReasonReady,
		"well")
	quiet.create(t, "pvc-2", nil)
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	c := w.controller(t)
	remove := func(handle string) error {
		_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		return err
	}
	handle := w.create(t, "pvc-1", nil)
	w.publish(t, handle, testNode, testNamespace, manyWriters, false)
	wantCode(t, remove(handle), codes.FailedPrecondition, testNode)
	wantOK(t, w.attachments.Detach(t.Context(), idOf(handle), testNode))

	pv := new(corev1.PersistentVolume)
	wantOK(t, w.client.Get(t.Context(), client.ObjectKey{Name: "pv-" + testNamespace + "-" + idOf(handle)}, pv))
	pv.Status.Phase = corev1.VolumeBound
	wantOK(t, w.client.Status().Update(t.Context(), pv))
	wantCode(t, remove(handle), codes.FailedPrecondition, pv.Name, "claim")
	wantOK(t, w.client.Delete(t.Context(), pv))

	change := func(f func(*v1alpha1.GeoVolumeContent)) {
		t.Helper()
		for {
			v := w.content(t, handle)
			f(v)
			if w.client.Update(t.Context(), v) == nil {
				return
			}
		}
	}
	change(func(v *v1alpha1.GeoVolumeContent) { v.Spec.Owner = "there" })
	wantCode(t, remove(handle), codes.FailedPrecondition, "there")
	change(func(v *v1alpha1.GeoVolumeContent) { v.Spec.Owner = testSite; v.Spec.ReclaimPolicy = v1alpha1.Retain })
	wantCode(t, remove(handle), codes.FailedPrecondition, "Retain")
	change(func(v *v1alpha1.GeoVolumeContent) {
		v.Spec.ReclaimPolicy = v1alpha1.Delete
		v.Spec.Claims[0].Kind = "GeoVolume"
	})
	wantCode(t, remove(handle), codes.FailedPrecondition, "GeoVolume team/claim")
	change(func(v *v1alpha1.GeoVolumeContent) {
		v.Spec.Claims[0].Kind = "PersistentVolumeClaim"
		v.Labels = map[string]string{"imported": "elsewhere"}
	})
	wantCode(t, remove(handle), codes.FailedPrecondition, "in use", "elsewhere")
	_, err := c.CreateVolume(t.Context(), createRequest("pvc-1", nil))
	wantCode(t, err, codes.Aborted, "being deleted")
	change(func(v *v1alpha1.GeoVolumeContent) { v.Labels = nil })
	for err = remove(handle); err != nil; err = remove(handle) {
		// The operator has not seen yet that it is not in use.
		wantCode(t, err, codes.FailedPrecondition, "in use")
	}
	wantOK(t, remove(handle))
	wantOK(t, remove("anything"))
	wantOK(t, remove("another/"+idOf(handle)))
}

func TestPublish(t *testing.T) {
	for name, x := range map[string]struct {
		claims    []v1alpha1.ClaimReference
		namespace string
		mode      csi.VolumeCapability_AccessMode_Mode
		readOnly  bool
		before    func(t *testing.T, w *world, handle string)
		code      codes.Code
		says      []string
		attached  map[string]bool // read-only, by node
	}{
		"writer":           {mode: manyWriters, attached: map[string]bool{testNode: false}},
		"reader":           {mode: manyReaders, attached: map[string]bool{testNode: true}},
		"read-only volume": {mode: manyWriters, readOnly: true, attached: map[string]bool{testNode: true}},
		"stranger": {namespace: "strangers", mode: manyWriters, code: codes.PermissionDenied,
			says: []string{"pv-strangers-", "namespace strangers", "GeoVolume"}},
		"stranger reads": {namespace: "strangers", mode: manyReaders, code: codes.PermissionDenied},
		"may only read": {claims: readersOf("team"), mode: manyWriters, code: codes.PermissionDenied,
			says: []string{"team", "ReadOnlyMany"}},
		"may only read, reads": {claims: readersOf("team"), mode: manyReaders, attached: map[string]bool{testNode: true}},
		"reads beside a writer": {claims: append(readersOf("team"), v1alpha1.ClaimReference{Kind: "GeoVolume", Namespace: "writers",
			Name: "v"}), mode: manyReaders, before: withVolume("writers", false), attached: map[string]bool{testNode: false}},
		"reads beside a reader": {claims: append(readersOf("team"), readersOf("others")...), mode: manyReaders,
			before: withVolume("others", true), attached: map[string]bool{testNode: true}},
		"reads beside stranger": {claims: readersOf("team"), mode: manyReaders, before: withVolume("strangers", false),
			attached: map[string]bool{testNode: true}},
		"second node": {mode: manyWriters, before: attachedTo("node-2", false),
			attached: map[string]bool{testNode: false, "node-2": false}},
		"one node, second": {mode: oneNode, before: attachedTo("node-2", false), code: codes.FailedPrecondition,
			says: []string{"node-2", "ReadWriteMany"}, attached: map[string]bool{"node-2": false}},
		"one pod, second": {mode: onePod, before: attachedTo("node-2", false), code: codes.FailedPrecondition,
			says: []string{"node-2"}, attached: map[string]bool{"node-2": false}},
		"one node, again": {mode: oneNode, before: attachedTo(testNode, false), attached: map[string]bool{testNode: false}},
		"wrote before, reads": {mode: manyReaders, before: attachedTo(testNode, false), code: codes.AlreadyExists,
			says: []string{testNode}, attached: map[string]bool{testNode: false}},
		"read before, writes": {mode: manyWriters, before: attachedTo(testNode, true), code: codes.AlreadyExists,
			attached: map[string]bool{testNode: true}},
		"two claims, one writes": {claims: append(readersOf("team"), v1alpha1.ClaimReference{Kind: "GeoVolume", Namespace: "team",
			Name: "w"}), mode: manyWriters, attached: map[string]bool{testNode: false}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.operate(t)
			handle := w.create(t, "pvc-1", nil)
			if x.claims != nil {
				v := w.content(t, handle)
				v.Spec.Claims = x.claims
				wantOK(t, w.client.Update(t.Context(), v))
			}
			if x.before != nil {
				x.before(t, w, handle)
			}
			if x.namespace == "" {
				x.namespace = testNamespace
			}
			for range 2 { // repeating changes nothing
				wantCode(t, w.tryPublish(t, handle, testNode, x.namespace, x.mode, x.readOnly), x.code, x.says...)
			}
			got := make(map[string]bool)
			all, _ := w.attachments.List(t.Context(), idOf(handle))
			for _, a := range all {
				got[a.Node] = a.ReadOnly
			}
			if !maps.Equal(got, x.attached) {
				t.Errorf("attached %v, want %v", got, x.attached)
			}
		})
	}
}

func readersOf(namespace string) []v1alpha1.ClaimReference {
	return []v1alpha1.ClaimReference{{Kind: "GeoVolume", Namespace: namespace, Name: "v", Access: v1alpha1.ReadOnly}}
}

func withVolume(namespace string, readOnly bool) func(*testing.T, *world, string) {
	return func(t *testing.T, w *world, handle string) {
		wantOK(t, w.attach(t.Context(), handle, "node-2", namespace, readOnly))
	}
}

func attachedTo(node string, readOnly bool) func(*testing.T, *world, string) {
	return func(t *testing.T, w *world, handle string) {
		wantOK(t, w.attachments.Attach(t.Context(), idOf(handle), node, readOnly))
	}
}

func TestPublishWithoutAttachment(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	handle := w.create(t, "pvc-1", nil)
	c := w.controller(t)
	q := &csi.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: testNode, VolumeCapability: capability(manyWriters)}
	_, err := c.ControllerPublishVolume(t.Context(), q)
	wantCode(t, err, codes.FailedPrecondition, "VolumeAttachment", testNode)
	// Another node's does not help.
	wantOK(t, w.attach(t.Context(), handle, "node-2", testNamespace, false))
	_, err = c.ControllerPublishVolume(t.Context(), q)
	wantCode(t, err, codes.FailedPrecondition, "VolumeAttachment")
	// A stranger's PersistentVolume beside an admitted one stops both: nobody knows whose pod
	// comes.
	wantOK(t, w.attach(t.Context(), handle, testNode, testNamespace, false))
	wantOK(t, w.attach(t.Context(), handle, testNode, "strangers", false))
	_, err = c.ControllerPublishVolume(t.Context(), q)
	wantCode(t, err, codes.PermissionDenied, "strangers")
}

func TestUnpublish(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	c := w.controller(t)
	handle := w.create(t, "pvc-1", nil)
	unpublish := func(handle, node string) error {
		_, err := c.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: node})
		return err
	}
	for _, node := range []string{testNode, "node-2"} {
		w.publish(t, handle, node, testNamespace, manyWriters, false)
	}
	r, err := c.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: handle})
	wantOK(t, err)
	if got := r.GetStatus().GetPublishedNodeIds(); !slices.Equal(got, []string{testNode, "node-2"}) {
		t.Errorf("published to %v", got)
	}
	w.attachments.fail = errors.New("the gateway does not answer")
	wantCode(t, unpublish(handle, testNode), codes.Unavailable, "does not answer", testNode)
	w.attachments.fail = nil
	wantOK(t, unpublish(handle, testNode))
	wantOK(t, unpublish(handle, testNode))
	w.publish(t, handle, testNode, testNamespace, manyWriters, false)
	wantOK(t, unpublish(handle, ""))
	if left, _ := w.attachments.List(context.Background(), ""); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	wantOK(t, unpublish("nonsense", testNode))
	// A volume that is gone.
	wantOK(t, unpublish(v1alpha1.VolumeHandle(testFederation, testCluster), testNode))
}

func TestChange(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	c := w.controller(t)
	handle := w.create(t, "pvc-1", map[string]string{"policy": "gold"})
	expand := func(required, limit int64) (int64, error) {
		r, err := c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
			VolumeId: handle, CapacityRange: &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}})
		if r.GetNodeExpansionRequired() {
			t.Error("the node has to expand something")
		}
		return r.GetCapacityBytes(), err
	}
	modify := func(parameters map[string]string) error {
		_, err := c.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: handle, MutableParameters: parameters})
		return err
	}
	size, err := expand(20<<20, 0)
	wantOK(t, err)
	if now := w.content(t, handle).Status.Capacity.Value(); size != 20<<20 || now != size {
		t.Errorf("expanded to %d, and it has %d", size, now)
	}
	size, err = expand(5, 0)
	if err != nil || size != 20<<20 {
		t.Errorf("expand to less: %d, %v", size, err)
	}
	_, err = expand(5, 6)
	wantCode(t, err, codes.OutOfRange, "shrink")

	wantOK(t, modify(map[string]string{"policy": "silver"}))
	wantOK(t, modify(map[string]string{"policy": "silver"}))
	wantOK(t, modify(nil))
	wantCode(t, modify(map[string]string{"policy": "no-such"}), codes.InvalidArgument, "no-such", "VolumePolicy")
	wantCode(t, modify(map[string]string{"policy": ""}), codes.InvalidArgument, "policy")
	if p := w.content(t, handle).Spec.Policy; p != "silver" {
		t.Errorf("the policy is %s", p)
	}
	wantCode(t, modify(map[string]string{"policy": "too-wide"}), codes.ResourceExhausted, "9 copies")
	wantOK(t, modify(map[string]string{"policy": "silver"}))

	v := w.content(t, handle)
	v.Spec.Claims[0].Kind = "GeoVolume"
	wantOK(t, w.client.Update(t.Context(), v))
	_, err = expand(30<<20, 0)
	wantCode(t, err, codes.FailedPrecondition, "GeoVolume team/claim", "spec.size")
	wantCode(t, modify(map[string]string{"policy": "gold"}), codes.FailedPrecondition, "spec.policy")
	v = w.content(t, handle)
	v.Spec.Owner = "there"
	wantOK(t, w.client.Update(t.Context(), v))
	_, err = expand(30<<20, 0)
	wantCode(t, err, codes.FailedPrecondition, "site there")
}

func TestListPages(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	c := w.controller(t)
	for i := range 5 {
		w.create(t, fmt.Sprintf("pvc-%d", i), nil)
	}
	var seen []string
	token := ""
	for {
		r, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		wantOK(t, err)
		for _, e := range r.GetEntries() {
			seen = append(seen, e.GetVolume().GetVolumeId())
		}
		if len(seen) == 2 { // the page's last volume goes away: no other is missed
			_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: seen[1]})
			wantOK(t, err)
		}
		if token = r.GetNextToken(); token == "" {
			break
		}
	}
	if slices.Sort(seen); len(slices.Compact(seen)) != 5 {
		t.Errorf("pages have %v", seen)
	}
	_, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	wantCode(t, err, codes.InvalidArgument, "max_entries")
}
