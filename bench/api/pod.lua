-- wrk: creates pods like those of a training job, each with a name of its own.
local made, thread_number = 0, 0

function setup(thread)
  thread:set("number", thread_number)
  thread_number = thread_number + 1
end

function init(arguments)
  headers = {["Authorization"] = "Bearer " .. arguments[1], ["Content-Type"] = "application/json"}
  prefix = arguments[2]
  spec = arguments[3]
end

function request()
  made = made + 1
  local name = prefix .. "-" .. number .. "-" .. made
  local body = '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"' .. name ..
    '","labels":{"app":"bench","training.kubeflow.org/job-name":"job-' .. made % 100 .. '"}},"spec":' .. spec:gsub("@RANK@", made) .. '}'
  return wrk.format("POST", "/api/v1/namespaces/default/pods", headers, body)
end

function response(status, _, body)
  if status ~= 201 and not said then
    said = true
    io.stderr:write("unexpected answer ", status, " ", body, "\n")
  end
end
