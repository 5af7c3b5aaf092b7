{{/* Names of images. An image in values has registry, repository, tag and digest. */}}

{{/* weir.imageRegistry: the host, and perhaps folders, in front of an image's repository; empty
     when nobody said. Argument: list of the root context, the image, and the registry of its
     project. */}}
{{- define "weir.imageRegistry" -}}
{{- $root := index . 0 -}}
{{- (index . 1).registry | default $root.Values.imageRegistry | default (index . 2) | trimSuffix "/" }}
{{- end }}

{{/* weir.imageName: REGISTRY/REPOSITORY:TAG, or REGISTRY/REPOSITORY@DIGEST. Argument: as above.
     */}}
{{- define "weir.imageName" -}}
{{- $root := index . 0 }}{{ $i := index . 1 -}}
{{- with include "weir.imageRegistry" . }}{{ . }}/{{ end }}{{ $i.repository }}
{{- if $i.digest }}@{{ $i.digest }}{{ else }}:{{ $i.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* weir.image: the name of Weir's image, or of a bundled part's. Argument: list of the root
     context and the image. */}}
{{- define "weir.image" -}}
{{ include "weir.imageName" (list (index . 0) (index . 1) "") }}
{{- end }}

{{/* weir.sidecars: the sidecars of the CSI controller that are in use, a JSON list of their keys in
     .Values.csi. */}}
{{- define "weir.sidecars" -}}
{{- $all := list "provisioner" "attacher" "resizer" }}
{{- if .Values.snapshots.enabled }}{{ $all = append $all "snapshotter" }}{{ end }}
{{- if .Values.csi.healthMonitor.enabled }}{{ $all = append $all "healthMonitor" }}{{ end }}
{{- toJson $all }}
{{- end }}

{{/* weir.groupGate: the flag by which snapshotter and snapshot controller look at groups, or not. */}}
{{- define "weir.groupGate" -}}
--feature-gates=CSIVolumeGroupSnapshot={{ .Values.snapshots.groups.enabled }}
{{- end }}

{{/* weir.imageProblems: what is missing for the names of images, a JSON list of messages. No image
     has a registry of its own here: Weir's is published nowhere, and which host serves other
     projects' is for who installs it to say. */}}
{{- define "weir.imageProblems" -}}
{{- $v := .Values }}{{ $p := list }}
{{- if not (include "weir.imageRegistry" (list . $v.image "")) }}
{{- $p = append $p "image.registry: missing: the image of Weir is published nowhere: push it with `make images PUSH=REGISTRY/PREFIX`, and write REGISTRY/PREFIX here, or in imageRegistry if all images are there" }}
{{- end }}
{{- $lacking := list }}{{ $names := list }}
{{- range include "weir.sidecars" . | fromJsonArray }}
{{- $i := (index $v.csi .).image }}
{{- if not (include "weir.imageRegistry" (list $ $i $v.csi.sidecarRegistry)) }}
{{- $lacking = append $lacking $i.repository }}{{ $names = append $names (printf "csi.%s.image.registry" .) }}
{{- end }}
{{- end }}
{{- $i := $v.snapshots.controller.image }}
{{- if and $v.snapshots.controller.enabled (not (include "weir.imageRegistry" (list . $i $v.csi.sidecarRegistry))) }}
{{- $lacking = append $lacking $i.repository }}{{ $names = append $names "snapshots.controller.image.registry" }}
{{- end }}
{{- with $lacking }}
{{- $p = append $p (printf "csi.sidecarRegistry: missing: write the host of the Kubernetes project's image registry, which has %s; or write imageRegistry, if you have all images under one prefix; or %s" (join ", " .) (join ", " $names)) }}
{{- end }}
{{- range $key := list "registry" "store" }}
{{- $b := index $v.bundled $key }}
{{- if and $b.enabled (not (include "weir.imageRegistry" (list $ $b.image ""))) }}
{{- $p = append $p (printf "bundled.%s.image.registry: missing: write the host of a registry that has %s; or imageRegistry, if you have all images under one prefix" $key $b.image.repository) }}
{{- end }}
{{- end }}
{{- toJson $p }}
{{- end }}
