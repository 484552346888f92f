-- wrk: gets one pod over and over.
function init(arguments)
  headers = {["Authorization"] = "Bearer " .. arguments[1]}
  path = arguments[2]
end

function request()
  return wrk.format("GET", path, headers)
end

function response(status, _, body)
  if status ~= 200 and not said then
    said = true
    io.stderr:write("unexpected answer ", status, " ", body, "\n")
  end
end
