# SPDX-License-Identifier: Apache-2.0
#
# recipe.sh - how hack/tools/build compiles a program. A change of this file builds all groups
# again; a change of how progress is shown does not, since that is not here.

export GOWORK=off GOFLAGS='-trimpath -buildvcs=false' CGO_ENABLED=0 GOOS= GOARCH=

# The folder of a main package names its program, except where that folder is a version or says too
# little.
program() {
    local p=${1%/v[0-9]}
    case $p in
    go.etcd.io/etcd/server) echo etcd ;;
    */plugins/plugins/*) echo "cni/${p##*/}" ;;     # a `bridge` in PATH would be taken for that of iproute2
    *) echo "${p##*/}" ;;
    esac
}

# How a program is linked and which of its parts are left out, where that is not plain.
compile() {
    local ldflags='-s -w' tags='' cgo=0
    case $1 in
    k8s.io/kubernetes/*)                    # without a version servers call themselves v0.0.0, and clients skip features
        local v=k8s.io/component-base/version n
        n=$(go list -m -f '{{.Version}}' k8s.io/kubernetes) || return
        ldflags+=" -X $v.gitVersion=$n -X $v.gitMajor=1 -X $v.gitMinor=$(cut -d. -f2 <<<"$n") -X $v.gitTreeState=clean" ;;
    */containerd/v2/*) tags=no_btrfs,no_devmapper,no_zfs ;;
    */runc) tags=seccomp,netgo,osusergo cgo=1 ldflags+=' -extldflags -static' ;;      # entering namespaces and seccomp are C
    esac
    CGO_ENABLED=$cgo go build -v -tags "$tags" -ldflags "$ldflags" -o "$2" "$1"
}
